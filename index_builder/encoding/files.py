"""Files of encoded texts, kept until the components are written.

    NAME.f32        vectors, float32 [rows, D], little-endian; one row for each text
    NAME.COMPONENT  a component's records in its own dtype, text by text; only if there are texts
    NAME.json       the `TextsReport`, with SHA-256 of vectors and ids, and of each component's records

Each is written under another name, synced and renamed, the report last. If the report matches, all are complete.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.artifact import file_sha256, sync
from glow.index import Records, VectorRows
from glow_index_builder.progress import peak_memory_bytes


class EncodedTexts(NamedTuple):
    """Encoded documents or passages."""

    truncated: Mapping[str, int]  # field -> number of texts whose field was truncated
    vectors: NDArray[np.float32]  # float32 [m, D]
    records: Mapping[str, Records] = {}  # name of a component -> its records of the same m texts


@dataclass(frozen=True, slots=True)
class TextsReport:
    """Describes the files of encoded texts."""

    ids: tuple[str, ...]  # ids of the documents, in order
    rows: int  # number of vectors
    truncated: Mapping[str, int]  # field -> number of documents or passages whose field was truncated
    seconds: float  # encoding time
    peak_memory_bytes: int  # peak memory of the encoding process so far
    sha256: str  # hash of vectors and ids
    # name of a component -> number of records of each row
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # name of a component -> hash of its records
    records_sha256: Mapping[str, str] = field(default_factory=dict)


def write_texts(
    folder: Path, name: str, ids: Sequence[str], parts: Iterable[EncodedTexts], **more: Any
) -> TextsReport:
    """Writes encoded texts, or rewrites damaged ones."""
    start, rows = time.perf_counter(), 0
    digest = hashlib.sha256()
    truncated: Counter[str] = Counter()
    records: dict[str, _RecordsFile] = {}
    with ExitStack() as stack:
        file = stack.enter_context(_replacing(folder, f"{name}.f32"))
        for part in parts:
            data = np.ascontiguousarray(part.vectors, "<f4").tobytes()
            digest.update(data)
            file.write(data)
            truncated.update(part.truncated)
            rows += len(part.vectors)
            for component, made in part.records.items():
                if component not in records:
                    records[component] = _RecordsFile(stack, folder, f"{name}.{component}")
                records[component].write(made)
    digest.update(json.dumps(ids).encode())
    report = TextsReport(
        ids=tuple(ids),
        rows=rows,
        truncated=dict(truncated),
        seconds=time.perf_counter() - start,
        peak_memory_bytes=peak_memory_bytes(),
        sha256=digest.hexdigest(),
        counts={component: tuple(each.counts) for component, each in records.items()},
        records_sha256={component: each.digest.hexdigest() for component, each in records.items()},
    )
    with _replacing(folder, f"{name}.json") as file:
        file.write(json.dumps({**asdict(report), **more}).encode())
    sync(folder)
    return report


class _RecordsFile:
    """Writes the records of one component."""

    def __init__(self, stack: ExitStack, folder: Path, name: str) -> None:
        self._file = stack.enter_context(_replacing(folder, name))
        self.digest = hashlib.sha256()
        self.counts: list[int] = []

    def write(self, made: Records) -> None:
        data = made.records.tobytes()
        self._file.write(data)
        self.digest.update(data)
        self.counts += made.counts.tolist()


def read_texts_report(
    folder: Path, name: str, dimensions: int, components: Iterable[str]
) -> tuple[TextsReport, dict[str, Any]] | None:
    """The report of complete files and its further values; None if a file is missing or has changed."""
    try:
        values: dict[str, Any] = json.loads((folder / f"{name}.json").read_bytes())
        counts = {component: tuple(each) for component, each in values.pop("counts").items()}
        own = {key: values.pop(key) for key in TextsReport.__slots__ if key not in ("ids", "counts")}
        report = TextsReport(ids=tuple(values.pop("ids")), counts=counts, **own)
        data = (folder / f"{name}.f32").read_bytes()
        digest = hashlib.sha256(data)
        digest.update(json.dumps(report.ids).encode())
        fits = digest.hexdigest() == report.sha256 and len(data) == 4 * dimensions * report.rows
        for component in components if report.rows else ():
            digest_here = file_sha256(folder / f"{name}.{component}")
            fits = fits and digest_here == report.records_sha256[component]
            fits = fits and len(report.counts[component]) == report.rows
        return (report, values) if fits else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class EncodedFiles:
    """Encoded texts in files, read on demand; an `Encoded` of `glow.index`."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        rows: Sequence[int],
        dimensions: int,
        dtypes: Mapping[str, np.dtype[Any]],  # name of a component -> dtype of its records
    ) -> None:
        self._folder = folder
        self._names = names
        self._rows = rows
        self._dimensions = dimensions
        self._dtypes = dtypes

    def records(self, component: str) -> Iterator[Records]:
        """A component's records, file by file in row order; empty if no job encoded it."""
        if component not in self._dtypes:
            return
        for name, rows in zip(self._names, self._rows, strict=True):
            if rows:
                counts = json.loads((self._folder / f"{name}.json").read_bytes())["counts"][component]
                records = np.fromfile(self._folder / f"{name}.{component}", self._dtypes[component])
                yield Records(records, np.array(counts, np.int64))

    def vectors(self) -> VectorRows:
        """All vectors, float32 [v, D]; read in blocks, not kept in memory."""
        paths = [self._folder / f"{name}.f32" for name in self._names]
        return VectorFiles(paths, self._rows, self._dimensions)


@contextmanager
def _replacing(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Opens a file that gets its name when it is complete and on the disk."""
    # Two processes may write one shard if a parent died and its child continues: each its own file.
    partial = folder / f".{name}-{os.getpid()}"
    try:
        with partial.open("wb") as file:
            yield file
        sync(partial)
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)


class VectorFiles:
    """The vectors of several files as one array [n, D], read on demand and not kept. It can be pickled."""

    def __init__(
        self,
        paths: Sequence[Path],  # paths of the files, in order; plain float32, little-endian
        rows: Sequence[int],
        dimensions: int,
    ) -> None:
        self._paths = [path.absolute() for path in paths]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self.shape = (int(self._starts[-1]), dimensions)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(
        self,
        index: slice | NDArray[np.int64],  # a slice without step, or row numbers, int64 of any shape
    ) -> NDArray[np.float32]:
        """Reads rows. Returns float32 [m, D], or [..., D]."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self._read(np.arange(start, stop))
        flat = index.reshape(-1)
        rows, places = np.unique(flat, return_inverse=True)
        rows_read: NDArray[np.float32] = self._read(rows)[places.reshape(-1)]
        return rows_read.reshape(*index.shape, self.shape[1])

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads ascending rows; reads each file once, from the first to the last wanted row."""
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
