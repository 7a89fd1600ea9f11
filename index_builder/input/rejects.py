"""Rejected lines: the first ones are written to a file as they occur; all are counted by fault."""

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
"""Further rejects are only counted: a file of a few kilobytes may unpack to millions of bad lines."""
# Faults come from code, so there are few; the limit is a safeguard.
MAX_FAULTS = 50
OTHER = "other"
_DETAILS = re.compile(r"(: |, found|, expected|; ).*", re.DOTALL)
_FIGURES = re.compile(r"-?\d[\d.e+-]*")

_HINTS = {
    "'_id' is missing": "Each document needs an id; --rename-field KEY=_id names the key that holds it",
    "not JSON": "Taken are JSON Lines (one object a line), CSV and TSV by their names' endings, and Parquet",
}
"""What to do if a fault is the most frequent one."""


def written_of(count: int) -> str:
    """Words for how many of `count` rejects a file holds."""
    return "all are in" if count <= MAX_WRITTEN else f"the first {MAX_WRITTEN} are in"


class RejectLog:
    """Writes `rejects.jsonl`: file, line, id if known, reason, start of the line. Use as a context manager.

    Args:
        path: the file to write; removed at the end if nothing was rejected.
        before: `counts` of an earlier log whose lines are in the file and stay there.

    Attributes:
        count: rejected lines.
        faults: fault -> number of lines.
        first: the first few, for messages.
    """

    def __init__(self, path: Path, before: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.faults: Counter[str] = Counter(before["faults"] if before else {})
        self.count = self.faults.total()
        self.first: list[str] = list(before["first"] if before else [])
        # A character outside of UTF-8 (a lone surrogate in a bad id) becomes a JSON escape.
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
        """The number of lines of each fault, and the first few, as JSON values."""
        return {"faults": dict(self.faults.most_common()), "first": self.first}

    def add(
        self, file: str | None, line: int | None, reason: str, data: bytes, identifier: str | None = None
    ) -> None:
        """Records one line.

        Args:
            file: the input file's name; None if it is unknown.
            line: its number there, from 1.
            reason: the fault, with details.
            data: the line, or its start.
            identifier: the document's id, if it could be read.
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
        """Fails a build whose input has too many rejects, and moves the rejects to `keep_as`.

        Args:
            documents: number of valid documents.
            max_share: largest allowed ratio of rejects, in [0, 1].
            keep_as: target path on the same disk.

        Raises:
            BuildError: if there are too many rejects or no documents; the message has counts, first faults and path.
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
