"""Shards: the unit of encoding. A range of documents in input order becomes files that never change.

Their name is START-STOP; `glow_index_builder.encoding.record_files` says what they are. The report also names the documents that were skipped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glow_index_builder.encoding.record_files import (
    EncodedTexts,
    TextsReport,
    read_texts_report,
    write_texts,
)

__all__ = ["Shard", "ShardReport", "plan_shards", "read_report", "write_shard"]


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of stored documents to encode.

    Attributes:
        start, stop: rows of the store, `stop` not included.
        skip: documents in it that cannot be encoded: row and reason, ascending.
        is_probe: whether it is only to be tried, and nothing kept.
    """

    start: int
    stop: int
    skip: tuple[tuple[int, str], ...] = ()
    is_probe: bool = False

    @property
    def name(self) -> str:
        """Names its files; sorts by `start`."""
        return f"{self.start:010d}-{self.stop:010d}"

    @property
    def documents(self) -> int:
        """Documents that are encoded."""
        return self.stop - self.start - len(self.skip)


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What came of a shard.

    Attributes:
        texts: of what was written.
        skipped: documents that could not be encoded, as `Shard.skip`.
    """

    texts: TextsReport
    skipped: tuple[tuple[int, str], ...]


def plan_shards(documents: int, size: int) -> list[Shard]:
    """Cuts rows 0 to `documents` into shards of `size`; the last may be smaller."""
    return [Shard(start, min(start + size, documents)) for start in range(0, documents, size)]


def write_shard(folder: Path, shard: Shard, ids: Sequence[str], parts: Iterable[EncodedTexts]) -> ShardReport:
    """Writes a shard, or again one that was damaged.

    Args:
        folder: of all shards.
        shard: names the files.
        ids, parts: as for `write_texts`.

    Raises:
        OSError: if the disk is full or cannot be written.
    """
    texts = write_texts(folder, shard.name, ids, parts, skipped=shard.skip)
    return ShardReport(texts, shard.skip)


def read_report(
    folder: Path, shard: Shard, dimensions: int, components: Iterable[str] = ()
) -> ShardReport | None:
    """The report of a shard that is done; None if it is missing, or not as it was written.

    Args:
        folder, shard: as for `write_shard`.
        dimensions: D.
        components: that must have records.
    """
    read = read_texts_report(folder, shard.name, dimensions, components)
    if read is None:
        return None
    texts, values = read
    try:
        skipped = tuple((int(row), str(reason)) for row, reason in values["skipped"])
    except (ValueError, KeyError, TypeError):
        return None
    is_whole = len(texts.ids) + len(skipped) == shard.stop - shard.start
    return ShardReport(texts, skipped) if is_whole else None
