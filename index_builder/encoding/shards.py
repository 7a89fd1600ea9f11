"""Shards: the unit of encoding. A range of documents in input order becomes two files that never change.

    START-STOP.f32     vectors, float32 [rows, D], little-endian; one row for each document, or for each passage
    START-STOP.states  term representations, uint8 [tokens, s + b]: of each token its scale in s bytes (0 or 2) and its codes in b;
                       only where there is a re-ranker
    START-STOP.learned  learned words, 6 bytes each: its place (uint32), its cause (uint8), its code (uint8); only where there are any
    START-STOP.json    what `ShardReport` says, with the SHA-256 of the vectors and the ids, of the states, and of the learned words

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

from glow.artifact import file_sha256, sync
from glow.index.learned_sparse import LearnedWords
from glow.index.token_embeddings import CodedStates, StateBits
from glow_index_builder.memory import peak_memory_bytes

__all__ = [
    "EncodedPart",
    "Shard",
    "ShardReport",
    "ShardVectors",
    "plan_shards",
    "read_learned",
    "read_report",
    "read_states",
    "write_shard",
]


_SCALE_BYTES = 2
_LEARNED = np.dtype([("word", "<u4"), ("cause", "u1"), ("code", "u1")])


class EncodedPart(NamedTuple):
    """Some documents or passages, encoded.

    Attributes:
        truncated: field -> how many lost words of it.
        vectors: float32 [m, D].
        states: of the same m; None where there is no re-ranker.
        words: of each of the m; None where there are no learned impacts.
    """

    truncated: dict[str, int]
    vectors: NDArray[np.float32]
    states: CodedStates | None = None
    words: Sequence[LearnedWords] | None = None


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
        kept: learned words of each row; none where there are no learned impacts.
        learned_sha256: of the learned words; empty without.
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
    kept: tuple[int, ...] = ()
    learned_sha256: str = ""


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
    digest = hashlib.sha256()
    truncated: Counter[str] = Counter()
    tokens: list[int] = []
    kept: list[int] = []
    with ExitStack() as stack:
        file = stack.enter_context(_replacing(folder, f"{shard.name}.f32"))
        states = _Extra(stack, folder, _states_name(shard))
        learned = _Extra(stack, folder, _learned_name(shard))
        for part in parts:
            data = np.ascontiguousarray(part.vectors, "<f4").tobytes()
            digest.update(data)
            file.write(data)
            truncated.update(part.truncated)
            rows += len(part.vectors)
            if part.states is not None:
                states.write(_records(part.states).tobytes())
                tokens += part.states.lengths.tolist()
            if part.words is not None:
                learned.write(b"".join(_learned_records(words) for words in part.words))
                kept += [len(words.words) for words in part.words]
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
        states_sha256=states.sha256,
        kept=tuple(kept),
        learned_sha256=learned.sha256,
    )
    with _replacing(folder, f"{shard.name}.json") as file:
        file.write(json.dumps(asdict(report)).encode())
    sync(folder)
    return report


class _Extra:
    """A file of a shard that is made when there is something to write."""

    def __init__(self, stack: ExitStack, folder: Path, name: str) -> None:
        self._stack, self._folder, self._name = stack, folder, name
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file = self._file or self._stack.enter_context(_replacing(self._folder, self._name))
        self._file.write(data)
        self._digest.update(data)

    @property
    def sha256(self) -> str:
        """Of what was written; empty where nothing was."""
        return self._digest.hexdigest() if self._file is not None else ""


def read_report(
    folder: Path, shard: Shard, dimensions: int, *, has_states: bool = False, has_learned: bool = False
) -> ShardReport | None:
    """The report of a shard that is done; None where it is missing, or not as it was written."""
    try:
        values: dict[str, Any] = json.loads((folder / f"{shard.name}.json").read_bytes())
        skipped = tuple((int(row), str(reason)) for row, reason in values["skipped"])
        lists = {name: tuple(values[name]) for name in ("ids", "tokens", "kept")} | {"skipped": skipped}
        report = ShardReport(**{**values, **lists})
        data = (folder / f"{shard.name}.f32").read_bytes()
        digest = hashlib.sha256(data)
        digest.update(json.dumps(values["ids"]).encode())
        fits = digest.hexdigest() == report.sha256 and len(data) == 4 * dimensions * report.rows
        if has_states and report.rows:
            found = file_sha256(folder / _states_name(shard))
            fits = fits and found == report.states_sha256 and len(report.tokens) == report.rows
        if has_learned and report.rows:
            found = file_sha256(folder / _learned_name(shard))
            fits = fits and found == report.learned_sha256 and len(report.kept) == report.rows
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


def read_learned(folder: Path, shard: Shard) -> list[LearnedWords]:
    """The learned words of each row of a shard that is done and checked."""
    values: dict[str, Any] = json.loads((folder / f"{shard.name}.json").read_bytes())
    if not values["kept"]:
        return []
    records = np.fromfile(folder / _learned_name(shard), _LEARNED)
    ends = np.cumsum(values["kept"])
    parts = np.split(records, ends[:-1])
    return [LearnedWords(part["word"], part["code"], part["cause"]) for part in parts]


def _learned_name(shard: Shard) -> str:
    return f"{shard.name}.learned"


def _learned_records(words: LearnedWords) -> bytes:
    records = np.empty(len(words.words), _LEARNED)
    records["word"], records["cause"], records["code"] = words.words, words.causes, words.codes
    return records.tobytes()


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
