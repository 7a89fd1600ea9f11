"""MS MARCO's documents on disk: an index of byte offsets and ids, and documents read one at a time.

`msmarco-docs.tsv` holds docid, url, title and body between tabs, one document a line without a header: 3.2 million
lines, 22 GB. One pass makes the index (some 100 MB), which is kept in a file and used again while the documents' size
and time of change are the same.
"""

import hashlib
import json
import logging
import os
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TextIO, overload

import numpy as np
from numpy.typing import NDArray

from glow.errors import InputError, IntegrityError
from glow.records import Document
from glow.schema import FieldSchema
from glow.training.data.turns import one_at_a_time

__all__ = ["DOCUMENTS", "MsMarcoDocuments", "Rejects"]

DOCUMENTS = "msmarco-docs.tsv"
INDEX = "msmarco-docs.index.npz"
REJECTS = "msmarco-docs.rejects.jsonl"
INDEX_VERSION = 1
COLUMNS = {"url": 1, "title": 2, "text": 3, "body": 3}
MAX_ID_BYTES = 64
_START_CHARACTERS = 200
_LOG = logging.getLogger(__name__)


class Rejects:
    """Writes the lines that cannot be used to a file of JSON lines, counts them, and logs the count at the end.

    The file (`file`, `line`, `reason`, `start`) appears at the end, whole: other processes may read the same data. Where
    nothing was rejected there is none.

    Args:
        path: the file to make; its folder is made too.

    Raises:
        InputError: if nothing can be written there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.first = ""
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}")
        self._file: TextIO
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("w", encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot write {path}: {error.strerror}; give a cache folder that can"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if not self.count:
            self._temporary.unlink()
            self.path.unlink(missing_ok=True)
        else:
            self._temporary.replace(self.path)
            _LOG.warning("%d lines cannot be used (%s); all are in %s", self.count, self.first, self.path)

    def add(self, file: str, line: int, reason: str, data: bytes) -> None:
        """Records one line by its file, its number from 1 and what is wrong with it."""
        start = data[: 4 * _START_CHARACTERS].decode(errors="replace").rstrip("\r\n")[:_START_CHARACTERS]
        record = {"file": file, "line": line, "reason": reason, "start": start}
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.first = self.first or f"{file} line {line}: {reason}"
        self.count += 1


@dataclass(frozen=True, slots=True, eq=False)
class _Index:
    """Where N documents lie.

    Attributes:
        offsets, lengths: int64 [N], bytes, line ends counted.
        ids: bytes [N], in file order.
        rejects: damaged lines.
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    ids: NDArray[np.bytes_]
    rejects: int


class MsMarcoDocuments(Sequence[Document]):
    """The documents of one file, each read when asked for; iteration reads the file once from front to back.

    Attributes:
        path: the file.
        rejects: its damaged lines, which have no number here.
    """

    def __init__(self, path: Path, index: _Index, names: Sequence[str]) -> None:
        self.path = path
        self.rejects = index.rejects
        self._index = index
        self._order = np.argsort(index.ids, kind="stable")
        self._sorted_ids = index.ids[self._order]
        self._columns = [(name, COLUMNS[name]) for name in names if name in COLUMNS]

    @classmethod
    def open(cls, folder: Path, schema: FieldSchema, cache: Path) -> "MsMarcoDocuments":
        """Opens a folder's documents; makes the index where the cache holds none that fits.

        Args:
            folder: holds `msmarco-docs.tsv`.
            schema: its fields `url`, `title` and `text` (or `body`) are filled.
            cache: folder of the index and of the rejects.

        Raises:
            InputError: if the documents are packed, missing or damaged, or the schema has none of their fields.
        """
        path = folder / DOCUMENTS
        packed = folder / f"{DOCUMENTS}.gz"
        if not path.is_file() and packed.is_file():
            why = "is packed, and documents are read by their place in the file"
            raise InputError(f"{packed} {why}; unpack it first: gunzip --keep {packed}")
        if not path.is_file():
            raise InputError(f"there is no {path}; expected MS MARCO's documents as released")
        if not set(schema.names) & set(COLUMNS):
            names, expected = ", ".join(schema.names), ", ".join(COLUMNS)
            raise InputError(f"schema {schema.name} has the fields {names}, expected some of {expected}")
        index = _load_index(path, cache)
        if index is None:
            with one_at_a_time(cache / f"{INDEX}.lock"):
                index = _load_index(path, cache) or _make_index(path, cache)
        return cls(path, index, schema.names)

    def __len__(self) -> int:
        """Documents in the file, damaged ones left out."""
        return len(self._index.offsets)

    @overload
    def __getitem__(self, number: int) -> Document: ...
    @overload
    def __getitem__(self, number: slice) -> list[Document]: ...
    def __getitem__(self, number: int | slice) -> Document | list[Document]:
        """Reads one document, or some; every call opens the file, so that forked and threaded readers are safe."""
        if isinstance(number, slice):
            return [self[position] for position in range(*number.indices(len(self)))]
        with self.path.open("rb", buffering=0) as file:
            return self._read(file, range(len(self))[number])

    def __iter__(self) -> Iterator[Document]:
        """Yields all documents in file order."""
        with self.path.open("rb", buffering=1 << 20) as file:
            for position in range(len(self)):
                yield self._read(file, position)

    @property
    def hash(self) -> str:
        """SHA-256, as hexadecimal digits, over ids, places and lengths: texts would cost a pass over the file.

        A text that is replaced by another of the same length goes unnoticed here; the term table knows its words.
        """
        digest = hashlib.sha256(self._index.ids.tobytes())
        digest.update(self._index.offsets.tobytes())
        digest.update(self._index.lengths.tobytes())
        return digest.hexdigest()

    def numbers(self, ids: Sequence[bytes]) -> NDArray[np.int64]:
        """Numbers of documents by id, int64 [ids]; -1 where there is none."""
        width = self._sorted_ids.itemsize
        # numpy cuts a longer id to the array's width, where it could equal another; no document's id is empty.
        wanted = np.array([i if len(i) <= width else b"" for i in ids], self._sorted_ids.dtype)
        places = np.minimum(np.searchsorted(self._sorted_ids, wanted), len(self) - 1)
        return np.where(self._sorted_ids[places] == wanted, self._order[places], -1)

    def _read(self, file: BinaryIO, number: int) -> Document:
        file.seek(int(self._index.offsets[number]))
        line = file.read(int(self._index.lengths[number]))
        columns = line.rstrip(b"\r\n").split(b"\t")
        if len(columns) != 4 or columns[0] != self._index.ids[number]:
            raise IntegrityError(f"{self.path} has changed since it was opened; start again")
        texts = ((name, columns[column].decode().strip()) for name, column in self._columns)
        return Document(columns[0].decode(), {name: (text,) if text else () for name, text in texts})


def _load_index(path: Path, cache: Path) -> _Index | None:
    """The cached index, where it is whole and of these very documents."""
    status = path.stat()
    try:
        with np.load(cache / INDEX, allow_pickle=False) as stored:
            if stored["made_for"].tolist() != [INDEX_VERSION, status.st_size, status.st_mtime_ns]:
                return None
            return _Index(stored["offsets"], stored["lengths"], stored["ids"], int(stored["rejects"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _make_index(path: Path, cache: Path) -> _Index:
    status = path.stat()
    with Rejects(cache / REJECTS) as rejects:
        index = _scan(path, rejects)
        if rejects.count >= max(len(index.ids), 1):
            good = f"{len(index.ids)} of its {len(index.ids) + rejects.count} lines are documents"
            raise InputError(
                f"{path} is not MS MARCO's: {good}. First fault: {rejects.first or 'it is empty'}"
            )
    temporary = cache / f"{INDEX}.part"
    with temporary.open("wb") as file:
        np.savez(
            file,
            made_for=np.array([INDEX_VERSION, status.st_size, status.st_mtime_ns], np.int64),
            offsets=index.offsets,
            lengths=index.lengths,
            ids=index.ids,
            rejects=np.array(index.rejects),
        )
    temporary.replace(cache / INDEX)
    return index


def _scan(path: Path, rejects: Rejects) -> _Index:
    offsets, lengths, lines = array("q"), array("q"), array("q")
    ids: list[bytes] = []
    offset = 0
    with path.open("rb", buffering=1 << 20) as file:
        for number, line in enumerate(file, start=1):
            if fault := _fault(line):
                rejects.add(path.name, number, fault, line)
            else:
                offsets.append(offset)
                lengths.append(len(line))
                lines.append(number)
                ids.append(line[: line.index(b"\t")])
            offset += len(line)
    all_ids = np.array(ids, np.bytes_)
    is_first = np.zeros(len(ids), np.bool_)
    is_first[np.unique(all_ids, return_index=True)[1]] = True
    for repeated in np.flatnonzero(~is_first):
        fault = f"a line before has the id {ids[repeated].decode()} too"
        rejects.add(path.name, lines[repeated], fault, ids[repeated])
    offset_array = np.frombuffer(offsets, np.int64)[is_first]
    length_array = np.frombuffer(lengths, np.int64)[is_first]
    return _Index(offset_array, length_array, all_ids[is_first], rejects.count)


def _fault(line: bytes) -> str:
    """What is wrong with a line of documents; "" where nothing is."""
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) != 4:
        return f"expected 4 columns (docid, url, title, body), found {len(columns)}"
    if not 0 < len(columns[0]) <= MAX_ID_BYTES or b"\0" in columns[0]:
        return f"expected a docid of 1 to {MAX_ID_BYTES} bytes without NUL, found {len(columns[0])} bytes"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {line[error.start]:#04x} at position {error.start}"
    return "" if any(text.strip() for text in columns[1:]) else "no text in url, title and body"
