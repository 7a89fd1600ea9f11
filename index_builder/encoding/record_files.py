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
from glow_index_builder.encoding.vector_files import VectorFiles
from glow_index_builder.memory import peak_memory_bytes

__all__ = ["EncodedFiles", "EncodedTexts", "TextsReport", "read_texts_report", "write_texts"]


class EncodedTexts(NamedTuple):
    """Encoded documents or passages.

    Attributes:
        truncated: field -> number of texts whose field was truncated.
        vectors: float32 [m, D].
        records: name of a component -> its records of the same m texts.
    """

    truncated: Mapping[str, int]
    vectors: NDArray[np.float32]
    records: Mapping[str, Records] = {}


@dataclass(frozen=True, slots=True)
class TextsReport:
    """Describes the files of encoded texts.

    Attributes:
        ids: ids of the documents, in order.
        rows: number of vectors.
        truncated: field -> number of documents or passages whose field was truncated.
        seconds: encoding time.
        peak_memory_bytes: peak memory of the encoding process so far.
        sha256: hash of vectors and ids.
        counts: name of a component -> number of records of each row.
        records_sha256: name of a component -> hash of its records.
    """

    ids: tuple[str, ...]
    rows: int
    truncated: Mapping[str, int]
    seconds: float
    peak_memory_bytes: int
    sha256: str
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    records_sha256: Mapping[str, str] = field(default_factory=dict)


def write_texts(
    folder: Path, name: str, ids: Sequence[str], parts: Iterable[EncodedTexts], **more: Any
) -> TextsReport:
    """Writes encoded texts, or rewrites damaged ones.

    Args:
        folder: directory of the files.
        name: common name of the files.
        ids: ids of the documents; complete when `parts` is exhausted.
        parts: encoded documents or passages in chunks, all with records of the same components.
        more: further JSON values for the report's file.

    Raises:
        OSError: if the disk is full or cannot be written.
    """
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
    """The report of complete files and its further values; None if a file is missing or has changed.

    Args:
        folder, name: as for `write_texts`.
        dimensions: D.
        components: components that must have records.
    """
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
            found = file_sha256(folder / f"{name}.{component}")
            fits = fits and found == report.records_sha256[component]
            fits = fits and len(report.counts[component]) == report.rows
        return (report, values) if fits else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class EncodedFiles:
    """Encoded texts in files, read on demand; an `Encoded` of `glow.index`.

    Args:
        folder: directory of the files.
        names: names of the files, in row order.
        rows: number of vectors in each.
        dimensions: D.
        dtypes: name of a component -> dtype of its records.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        rows: Sequence[int],
        dimensions: int,
        dtypes: Mapping[str, np.dtype[Any]],
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
