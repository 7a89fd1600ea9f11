"""Writes a data directory: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv` (docs/data.md) and a file of bad records.

The converters of public releases share it. The directory gets its name when it is complete.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from glow.errors import InputError

__all__ = ["DataFolder", "collapsed", "share", "split_of"]

REJECTS = "rejects.jsonl"
HEADER = "query-id\tcorpus-id\tscore\n"


class DataFolder:
    """Writes a data directory; use as a context manager.

    Args:
        out: the directory to create; it must not exist.

    Attributes:
        counts: documents, queries, rejects, and judgments by split.

    Raises:
        InputError: if `out` exists.
    """

    def __init__(self, out: Path) -> None:
        if out.exists():
            raise InputError(f"{out} exists already; remove it or choose another --out")
        self._out = out
        self._part = out.with_name(f".{out.name}.part")
        self._files: dict[str, TextIO] = {}
        self._ids: dict[str, set[str]] = {"corpus.jsonl": set(), "queries.jsonl": set()}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        shutil.rmtree(self._part, ignore_errors=True)
        (self._part / "qrels").mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        if kind is None and self.counts["documents"] and self.counts["queries"]:
            self._part.rename(self._out)
            return
        shutil.rmtree(self._part)
        if kind is None:
            counts = f"{self.counts['documents']} documents and {self.counts['queries']} queries"
            raise InputError(f"the source holds {counts}; expected some of both: is it the right directory?")

    def add_document(
        self,
        identifier: str,
        text: str,
        url: str = "",
        title: str = "",
        anchor: Sequence[str] = (),
        clicked_queries: Sequence[str] = (),
        **metadata: str,
    ) -> None:
        """Writes one document; a second one with the same id is rejected."""
        fields: dict[str, Any] = {"url": url, "title": title, "anchor": list(anchor)}
        record = {
            "_id": identifier,
            **fields,
            "clicked_queries": list(clicked_queries),
            "text": text,
            **metadata,
        }
        self._add("corpus.jsonl", "documents", record)

    def add_query(self, identifier: str, text: str) -> None:
        """Writes one query; a second one with the same id is rejected."""
        self._add("queries.jsonl", "queries", {"_id": identifier, "text": text})

    def judge(self, split: str, query: str, document: str, grade: int) -> None:
        """Writes one relevance judgment."""
        file = self._file(f"qrels/{split}.tsv", HEADER)
        file.write(f"{query}\t{document}\t{grade}\n")
        self.counts[f"judgements {split}"] += 1

    def reject(self, file: str, place: str, reason: str, start: str = "") -> None:
        """Records an unusable record: its file, its place (`line 7`, an id), the reason and its start."""
        record = {"file": file, "place": place, "reason": reason, "start": start[:200]}
        self._write(REJECTS, record)
        self.counts["rejects"] += 1

    def summary(self) -> str:
        """The counts in one line."""
        counted = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"{self._out}: {counted}" + (f" (see {REJECTS})" if self.counts["rejects"] else "")

    def _add(self, file: str, kind: str, record: dict[str, Any]) -> None:
        identifier = record["_id"]
        if identifier in self._ids[file]:
            self.reject(file, identifier, f"{kind}: this id occurs before", str(record.get("text", "")))
            return
        self._ids[file].add(identifier)
        self._write(file, record)
        self.counts[kind] += 1

    def _write(self, file: str, record: dict[str, Any]) -> None:
        self._file(file).write(json.dumps(record, ensure_ascii=False) + "\n")

    def _file(self, name: str, header: str = "") -> TextIO:
        if name not in self._files:
            self._files[name] = (self._part / name).open("w", encoding="utf-8", newline="\n")
            self._files[name].write(header)
        return self._files[name]


def collapsed(text: str) -> str:
    """The text with each run of white space replaced by one blank."""
    return " ".join(text.split())


def share(key: str) -> float:
    """A number in [0, 1) that depends only on a key, uniform over keys."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64


def split_of(key: str, shares: Sequence[tuple[str, float]]) -> str:
    """The split of a key, chosen by a hash; `splits` has names and fractions that add up to 1."""
    place = share(f"split:{key}")
    for name, size in shares:
        if place < size:
            return name
        place -= size
    return shares[-1][0]
