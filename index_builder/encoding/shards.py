"""Shards: the unit of encoding. A range of documents in input order becomes two files that never change.

    START-STOP.f32     vectors, float32 [rows, D], little-endian; one row for each document, or for each passage
    START-STOP.states  term representations, uint8 [tokens, s + b]: of each token its scale in s bytes (0 or 2) and its codes in b;
                       only where there is a re-ranker
    START-STOP.json    what `ShardReport` says, with the SHA-256 of the vectors and the ids, and of the states

Each is written under another name, synced and renamed, the report last: where it is and fits, the shard is done.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.artifact import sync
from glow.search import CodedStates, StateBits
from glow_index_builder.memory import peak_memory_bytes

__all__ = [
    "EncodedPart",
    "Shard",
    "ShardReport",
    "ShardVectors",
    "plan_shards",
    "read_report",
    "read_states",
    "write_shard",
]


_SCALE_BYTES = 2


class EncodedPart(NamedTuple):
    """Some documents or passages, encoded.

    Attributes:
        truncated: field -> how many lost words of it.
        vectors: float32 [m, D].
        states: of the same m; None where there is no re-ranker.
    """

    truncated: dict[str, int]
    vectors: NDArray[np.float32]
    states: CodedStates | None = None


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
        ids: of its documents, in order, without those skipped.
        skipped: documents that could not be encoded, as `Shard.skip`.
        rows: vectors.
        truncated: field -> documents or passages that lost words of it.
        seconds: that encoding took.
        peak_memory_bytes: the most that the process which encoded it held so far.
        sha256: of vectors and ids.
        tokens: of the stored states of each row; none where there is no re-ranker.
        states_sha256: of the states; empty without.
    """

    ids: tuple[str, ...]
    skipped: tuple[tuple[int, str], ...]
    rows: int
    truncated: dict[str, int]
    seconds: float
    peak_memory_bytes: int
    sha256: str
    tokens: tuple[int, ...] = ()
    states_sha256: str = ""


def plan_shards(documents: int, size: int) -> list[Shard]:
    """Cuts rows 0 to `documents` into shards of `size`; the last may be smaller."""
    return [Shard(start, min(start + size, documents)) for start in range(0, documents, size)]


def write_shard(folder: Path, shard: Shard, ids: list[str], parts: Iterable[EncodedPart]) -> ShardReport:
    """Writes a shard, or again one that was damaged.

    Args:
        folder: of all shards.
        shard: names the files.
        ids: of its documents; complete when `parts` are at their end.
        parts: its documents or passages, piece by piece; all with states, or none.

    Raises:
        OSError: if the disk is full or cannot be written.
    """
    start, rows = time.perf_counter(), 0
    digest, states_digest = hashlib.sha256(), hashlib.sha256()
    truncated: Counter[str] = Counter()
    tokens: list[int] = []
    with ExitStack() as stack:
        file = stack.enter_context(_replacing(folder, f"{shard.name}.f32"))
        states_file: BinaryIO | None = None
        for part in parts:
            data = np.ascontiguousarray(part.vectors, "<f4").tobytes()
            digest.update(data)
            file.write(data)
            truncated.update(part.truncated)
            rows += len(part.vectors)
            if part.states is not None:
                states_file = states_file or stack.enter_context(_replacing(folder, _states_name(shard)))
                data = _records(part.states).tobytes()
                states_digest.update(data)
                states_file.write(data)
                tokens += part.states.lengths.tolist()
    digest.update(json.dumps(ids).encode())
    report = ShardReport(
        ids=tuple(ids),
        skipped=shard.skip,
        rows=rows,
        truncated=dict(truncated),
        seconds=time.perf_counter() - start,
        peak_memory_bytes=peak_memory_bytes(),
        sha256=digest.hexdigest(),
        tokens=tuple(tokens),
        states_sha256=states_digest.hexdigest() if tokens else "",
    )
    with _replacing(folder, f"{shard.name}.json") as file:
        file.write(json.dumps(asdict(report)).encode())
    sync(folder)
    return report


def read_report(
    folder: Path, shard: Shard, dimensions: int, *, has_states: bool = False
) -> ShardReport | None:
    """The report of a shard that is done; None where it is missing, or not as it was written."""
    try:
        values: dict[str, Any] = json.loads((folder / f"{shard.name}.json").read_bytes())
        skipped = tuple((int(row), str(reason)) for row, reason in values["skipped"])
        lists = {"ids": tuple(values["ids"]), "tokens": tuple(values["tokens"]), "skipped": skipped}
        report = ShardReport(**{**values, **lists})
        data = (folder / f"{shard.name}.f32").read_bytes()
        digest = hashlib.sha256(data)
        digest.update(json.dumps(values["ids"]).encode())
        fits = digest.hexdigest() == report.sha256 and len(data) == 4 * dimensions * report.rows
        if has_states and report.rows:
            found = hashlib.sha256((folder / _states_name(shard)).read_bytes()).hexdigest()
            fits = fits and found == report.states_sha256 and len(report.tokens) == report.rows
        return report if fits and len(report.ids) + len(report.skipped) == shard.stop - shard.start else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_states(folder: Path, shard: Shard, bits: StateBits) -> CodedStates | None:
    """The states of a shard that is done and checked; None where all its documents were skipped."""
    values: dict[str, Any] = json.loads((folder / f"{shard.name}.json").read_bytes())
    lengths = np.array(values["tokens"], np.int64)
    if not len(lengths):
        return None
    records = np.fromfile(folder / _states_name(shard), np.uint8).reshape(int(lengths.sum()), -1)
    if bits == 16:
        return CodedStates(lengths, records, np.empty(0, np.float16))
    scales = np.ascontiguousarray(records[:, :_SCALE_BYTES]).view("<f2")[:, 0]
    return CodedStates(lengths, records[:, _SCALE_BYTES:], scales)


def _states_name(shard: Shard) -> str:
    return f"{shard.name}.states"


def _records(states: CodedStates) -> NDArray[np.uint8]:
    """Scale and codes of each token side by side: one file to write, to check and to read."""
    if not len(states.scales):
        return states.codes
    scales = states.scales.astype("<f2").reshape(-1, 1).view(np.uint8)
    return np.concatenate([scales, states.codes], axis=1)


class ShardVectors:
    """The vectors of all shards as one array [n, D] of which blocks are read, and nothing else is held.

    Args:
        folder: of the shards.
        shards: all of them, in order.
        rows: vectors of each.
        dimensions: D.

    Attributes:
        shape: (n, D).
    """

    def __init__(self, folder: Path, shards: Sequence[Shard], rows: Sequence[int], dimensions: int) -> None:
        self._paths = [folder / f"{shard.name}.f32" for shard in shards]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self.shape = (int(self._starts[-1]), dimensions)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, wanted: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads rows.

        Args:
            wanted: a slice without step, or row numbers, int64 of any shape.

        Returns:
            float32 [m, D], or [..., D].
        """
        if isinstance(wanted, slice):
            start, stop, _ = wanted.indices(len(self))
            return self._read(np.arange(start, stop))
        flat = wanted.reshape(-1)
        rows, places = np.unique(flat, return_inverse=True)
        rows_read: NDArray[np.float32] = self._read(rows)[places.reshape(-1)]
        return rows_read.reshape(*wanted.shape, self.shape[1])

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows that ascend; each file that holds one is read once, the stretch between first and last of them."""
        vectors = np.empty((len(rows), self.shape[1]), np.float32)
        owners = np.searchsorted(self._starts, rows, "right") - 1
        edges = np.flatnonzero(np.diff(owners, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            owner = int(owners[begin])
            here = rows[begin:end] - self._starts[owner]
            first, count = int(here[0]), int(here[-1] - here[0]) + 1
            width = self.shape[1]
            block = np.fromfile(self._paths[owner], "<f4", count * width, offset=4 * first * width)
            vectors[begin:end] = block.reshape(count, width)[here - first]
        return vectors


@contextmanager
def _replacing(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A file that takes its name when it is whole and on the disk."""
    # Two processes may write one shard, where a parent died and a child works on: each its own file.
    partial = folder / f".{name}-{os.getpid()}"
    try:
        with partial.open("wb") as file:
            yield file
        sync(partial)
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
