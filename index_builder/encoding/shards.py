"""Encoding batches ("shards"): a range of documents in input order becomes files that never change.

The files are named START-STOP; see `glow_index_builder.encoding.record_files`. The report also lists skipped documents.
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
        start, stop: rows of the store, `stop` excluded.
        skip: row and cause of each document that cannot be encoded, ascending.
        is_probe: whether it is encoded only as a test, without writing files.
    """

    start: int
    stop: int
    skip: tuple[tuple[int, str], ...] = ()
    is_probe: bool = False

    @property
    def name(self) -> str:
        """The name of its files; sorts by `start`."""
        return f"{self.start:010d}-{self.stop:010d}"

    @property
    def documents(self) -> int:
        """Number of documents to encode."""
        return self.stop - self.start - len(self.skip)


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Describes a finished shard.

    Attributes:
        texts: describes its files.
        skipped: documents that could not be encoded, as `Shard.skip`.
    """

    texts: TextsReport
    skipped: tuple[tuple[int, str], ...]


def plan_shards(documents: int, size: int) -> list[Shard]:
    """Cuts rows 0 to `documents` into shards of `size`; the last may be smaller."""
    return [Shard(start, min(start + size, documents)) for start in range(0, documents, size)]


def write_shard(folder: Path, shard: Shard, ids: Sequence[str], parts: Iterable[EncodedTexts]) -> ShardReport:
    """Writes a shard, or rewrites a damaged one.

    Args:
        folder: directory of all shards.
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
    """The report of a finished shard; None if a file is missing or has changed.

    Args:
        folder, shard: as for `write_shard`.
        dimensions: D.
        components: components that must have records.
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
