"""Files of encoded texts, which are kept until components are written.

    NAME.f32        vectors, float32 [rows, D], little-endian; one row for each text
    NAME.COMPONENT  a component's records, of its own dtype, one text's after another's; only if there are texts
    NAME.json       what `TextsReport` says, with SHA-256 of vectors and ids, and of each component's records

Each is written under another name, synced and renamed, the report last: if it is there and fits, all are whole.
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
    """Some documents or passages, encoded.

    Attributes:
        truncated: field -> how many lost words of it.
        vectors: float32 [m, D].
        records: name of a component -> what it stores of the same m.
    """

    truncated: Mapping[str, int]
    vectors: NDArray[np.float32]
    records: Mapping[str, Records] = {}


@dataclass(frozen=True, slots=True)
class TextsReport:
    """What files of encoded texts hold.

    Attributes:
        ids: of the documents, in order.
        rows: vectors.
        truncated: field -> documents or passages that lost words of it.
        seconds: that encoding took.
        peak_memory_bytes: the most that the process which encoded held so far.
        sha256: of vectors and ids.
        counts: name of a component -> records of each row.
        records_sha256: name of a component -> of its records.
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
    """Writes encoded texts, or again some that were damaged.

    Args:
        folder: of the files.
        name: of the files.
        ids: of the documents; complete when `parts` are at their end.
        parts: documents or passages, piece by piece; all with records of the same components.
        more: kept in the report's file beside the rest, JSON values.

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
    """The records of one component in the making."""

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
    """The report of files that are whole, and what else its file says; None if one is missing, or not as it was written.

    Args:
        folder, name: as for `write_texts`.
        dimensions: D.
        components: that must have records.
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
    """Encoded texts in files, each of which is read when it is asked for; an `Encoded` of `glow.index`.

    Args:
        folder: of the files.
        names: of the files, in the order of the rows.
        rows: vectors of each.
        dimensions: D.
        dtypes: name of a component -> of its records.
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
        """A component's records, one file's after another's, in the order of rows; what was encoded by no job has none."""
        if component not in self._dtypes:
            return
        for name, rows in zip(self._names, self._rows, strict=True):
            if rows:
                counts = json.loads((self._folder / f"{name}.json").read_bytes())["counts"][component]
                records = np.fromfile(self._folder / f"{name}.{component}", self._dtypes[component])
                yield Records(records, np.array(counts, np.int64))

    def vectors(self) -> VectorRows:
        """The vectors of all, float32 [v, D]; read in blocks, held nowhere."""
        paths = [self._folder / f"{name}.f32" for name in self._names]
        return VectorFiles(paths, self._rows, self._dimensions)


@contextmanager
def _replacing(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A file that takes its name when it is whole and on the disk."""
    # Two processes may write one shard, if a parent died and a child works on: each its own file.
    partial = folder / f".{name}-{os.getpid()}"
    try:
        with partial.open("wb") as file:
            yield file
        sync(partial)
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
