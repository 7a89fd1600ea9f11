"""The lines that are no documents: the first are written to a file as they come, all counted by what is wrong with them."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from glow.errors import BuildError

__all__ = ["REJECTS_FILE", "RejectLog", "written_of"]

REJECTS_FILE = "rejects.jsonl"
"""Rejected lines: file, line, id if known, reason, start of the line."""
START_CHARACTERS = 200
REASON_CHARACTERS = 500
SHOWN = 3
MAX_WRITTEN = 10_000
"""Rejects beyond these are counted alone: a file of a few kilobytes unpacks to millions of bad lines."""
# The reasons come from code, so there are few; a bound keeps even a surprise from growing without end.
MAX_FAULTS = 50
OTHER = "other"
_DETAILS = re.compile(r"(: |, found|, expected|; ).*", re.DOTALL)
_FIGURES = re.compile(r"-?\d[\d.e+-]*")

_HINTS = {
    "'_id' is missing": "Each document needs an id; --rename-field KEY=_id names the key that holds it",
    "not JSON": "Taken are JSON Lines (one object a line), CSV and TSV by their names' endings, and Parquet",
}
"""What to do where a fault is the commonest."""


def written_of(count: int) -> str:
    """How many of so many rejects are in a file, for people."""
    return "all are in" if count <= MAX_WRITTEN else f"the first {MAX_WRITTEN} are in"


class RejectLog:
    """Writes `rejects.jsonl`: file, line, id if known, reason, start of the line. Use as a context manager.

    Args:
        path: the file to make; it is removed again where nothing was rejected.
        before: what `counts` of an earlier log was, whose lines lie in the file and stay there.

    Attributes:
        count: rejected lines.
        faults: what is wrong -> number of lines.
        first: the first few, for people.
    """

    def __init__(self, path: Path, before: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.faults: Counter[str] = Counter(before["faults"] if before else {})
        self.count = self.faults.total()
        self.first: list[str] = list(before["first"] if before else [])
        # What UTF-8 cannot hold (a lone surrogate in a bad id) becomes JSON's own escape.
        self._file = path.open("a" if before else "w", encoding="utf-8", errors="backslashreplace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if not self.count:
            self.path.unlink(missing_ok=True)

    @property
    def counts(self) -> dict[str, Any]:
        """What is wrong how often, and the first few, as JSON values."""
        return {"faults": dict(self.faults.most_common()), "first": self.first}

    def add(
        self, file: str | None, line: int | None, reason: str, data: bytes, identifier: str | None = None
    ) -> None:
        """Records one line.

        Args:
            file: the input file's name; None where it is not known any more.
            line: its number there, from 1.
            reason: what is wrong, with details.
            data: the line, or its start.
            identifier: the document's id, where it could be read.
        """
        reason = reason[:REASON_CHARACTERS]
        start = data[: 4 * START_CHARACTERS].decode(errors="replace")[:START_CHARACTERS]
        record = {"file": file, "line": line, "id": identifier, "reason": reason, "start": start}
        if self.count < MAX_WRITTEN:
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.count += 1
        fault = _FIGURES.sub("…", _DETAILS.sub("", reason))
        self.faults[fault if fault in self.faults or len(self.faults) < MAX_FAULTS else OTHER] += 1
        if len(self.first) < SHOWN:
            self.first.append(f"{file} line {line}: {reason}" if file else f"document {identifier}: {reason}")

    def require_share(self, documents: int, max_share: float, keep_as: Path) -> None:
        """Fails a build whose input is bad; its rejects then lie at `keep_as`.

        Args:
            documents: good documents.
            max_share: share of rejects that is allowed, in [0, 1].
            keep_as: where the file goes, on the same disk.

        Raises:
            BuildError: if too many rejects or no document; the message has counts, the first reasons and the path.
        """
        lines = documents + self.count
        if documents and self.count <= max_share * lines:
            return
        if not lines:
            raise BuildError("the input holds no document: every line is empty; the live index is unchanged")
        self._file.flush()
        self.path.replace(keep_as)
        limit = f"limit: {max_share:.0%}, --max-reject-ratio" if documents else "so there is no document"
        faults = ", ".join(f"{count} x {fault}" for fault, count in self.faults.most_common(5))
        (fault, _), *_ = self.faults.most_common(1)
        hint = next((f". {hint}" for start, hint in _HINTS.items() if fault.startswith(start)), "")
        raise BuildError(
            f"{self.count} of {lines} input lines are invalid ({limit}): {faults}. First: {' | '.join(self.first)}{hint}. "
            f"{written_of(self.count).capitalize()} {keep_as}. The live index is unchanged"
        )
