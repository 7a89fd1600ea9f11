"""A teacher's vectors, keyed by the content of their texts: float16 on disk, memory-mapped, computed once.

A directory has `vectors.f16` (rows), `keys.bin` (16 bytes each), and `teacher.json` with the teacher, the number of rows
and hashes of both files. A stopped call resumes after the last row that both files hold.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from glow.artifact import file_sha256
from glow.errors import ConfigError, IntegrityError, MismatchError
from glow.records import Document
from glow.training.data import one_at_a_time

__all__ = ["VECTORS_HEADER", "Aims", "TeacherVectors", "document_key", "query_key"]

VECTORS_HEADER = "teacher.json"
VECTORS, KEYS = "vectors.f16", "keys.bin"
KEY_BYTES, CHUNK = 16, 2048
Encode = Callable[[Sequence[int]], NDArray[np.float32]]
"""Numbers of missing texts -> float32 [n, W]."""


def query_key(text: str) -> bytes:
    """The key of a query's text."""
    return _key("query", text)


def document_key(document: Document) -> bytes:
    """The key of a document's fields."""
    return _key("document", repr(document.fields))


def _key(kind: str, text: str) -> bytes:
    return hashlib.blake2b(f"{kind}\0{text}".encode("utf-8", "replace"), digest_size=KEY_BYTES).digest()


class Aims:
    """A teacher's vectors of some texts; `aims[rows]` is float32 [n, W]."""

    def __init__(self, vectors: NDArray[np.float16], rows: NDArray[np.int64]) -> None:
        self._vectors, self._rows = vectors, rows
        self.width = int(vectors.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, numbers: Any) -> NDArray[np.float32]:
        """Vectors of texts, by numbers or a slice."""
        found: NDArray[np.float32] = self._vectors[self._rows[numbers]].astype(np.float32)
        return found


class TeacherVectors:
    """Finished vectors of a teacher.

    Args:
        folder: directory of the files.

    Attributes:
        teacher: hash of the teacher.
        width: numbers per vector.

    Raises:
        IntegrityError: if a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        try:
            header = json.loads((folder / VECTORS_HEADER).read_bytes())
            for name in (VECTORS, KEYS):
                if _sha256(folder / name) != header["files"][name]:
                    raise IntegrityError(f"{folder / name} is damaged; remove {folder} and run glow teach")
            self.folder, self.teacher, self.width = folder, str(header["teacher"]), int(header["width"])
            shape = (int(header["count"]), self.width)
            self._vectors: NDArray[np.float16] = np.memmap(folder / VECTORS, np.float16, "r", shape=shape)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise IntegrityError(
                f"{folder} holds no finished vectors of a teacher ({error}); run glow teach with the same --out again"
            ) from error
        keys = np.fromfile(folder / KEYS, f"V{KEY_BYTES}")
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def __len__(self) -> int:
        return len(self._keys)

    def aims(self, keys: Sequence[bytes], what: str) -> Aims:
        """The vectors of texts by their keys.

        Raises:
            MismatchError: if some are missing; `what` names them.
        """
        wanted = np.array(keys, f"V{KEY_BYTES}")
        places = np.minimum(np.searchsorted(self._keys, wanted), max(len(self._keys) - 1, 0))
        missing = np.flatnonzero(self._keys[places] != wanted) if len(self._keys) else np.arange(len(wanted))
        if len(missing):
            raise MismatchError(
                f"{self.folder} lacks {len(missing):,} of {len(wanted):,} vectors of {what} (the first: number {missing[0]}); "
                "it was made from other data or --fields: run glow teach with this --data and --fields"
            )
        return Aims(self._vectors, self._order[places])

    @classmethod
    def make(
        cls,
        folder: Path,
        teacher: str,
        keys: Sequence[bytes],
        encode: Encode,
        advance: Callable[[int], None] = lambda done: None,
    ) -> Self:
        """Computes missing vectors.

        Args:
            folder: directory of the files.
            teacher: hash of all inputs that decide a vector, besides its text.
            keys: keys of the texts.
            encode: encodes texts, given by their numbers in `keys`.
            advance: called with the number computed or found since the last call.

        Raises:
            ConfigError: if the teacher does not return one finite vector per text.
            IntegrityError: if the existing files are damaged.
            MismatchError: if the directory holds another teacher's vectors.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder / "making.lock"):
            known, width, is_finished = _known(folder, teacher)
            missing = [number for number, key in enumerate(keys) if key not in known]
            missing = list({keys[number]: number for number in reversed(missing)}.values())[::-1]
            advance(len(keys) - len(missing))
            if not missing and is_finished:
                return cls(folder)
            with (folder / VECTORS).open("ab") as vectors, (folder / KEYS).open("ab") as names:
                for start in range(0, len(missing), CHUNK):
                    numbers = missing[start : start + CHUNK]
                    made = _checked(encode(numbers), len(numbers), width)
                    width = made.shape[1]
                    _write_header(folder, teacher, width, None)
                    vectors.write(made.tobytes())
                    vectors.flush()
                    names.write(b"".join(keys[number] for number in numbers))
                    names.flush()
                    advance(len(numbers))
            _write_header(folder, teacher, width, (folder / KEYS).stat().st_size // KEY_BYTES)
            return cls(folder)


def _known(folder: Path, teacher: str) -> tuple[set[bytes], int, bool]:
    """Keys of complete rows, their width, and whether all are there; truncates incomplete rows of a stopped call."""
    header: dict[str, Any] = {"width": 0, "teacher": teacher}
    try:
        if (folder / VECTORS_HEADER).is_file():
            header = json.loads((folder / VECTORS_HEADER).read_bytes())
        width, is_other, is_finished = int(header["width"]), header["teacher"] != teacher, "files" in header
    except (ValueError, TypeError, KeyError) as error:
        raise IntegrityError(f"{folder / VECTORS_HEADER} is damaged ({error}); remove {folder}") from error
    if is_other:
        raise MismatchError(
            f"{folder} holds vectors of another teacher, or of the same model over another corpus; choose another --out"
        )
    if is_finished:
        TeacherVectors(folder)  # otherwise new hashes would hide the damage
    for name in (VECTORS, KEYS):
        (folder / name).touch()
    rows = (folder / VECTORS).stat().st_size // (2 * width) if width else 0
    rows = min(rows, (folder / KEYS).stat().st_size // KEY_BYTES)
    for name, size in ((VECTORS, 2 * width), (KEYS, KEY_BYTES)):
        with (folder / name).open("r+b") as file:
            file.truncate(rows * size)
    data = (folder / KEYS).read_bytes()
    return {data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)}, width, is_finished


def _checked(made: Any, count: int, width: int) -> NDArray[np.float16]:
    """Checks vectors and converts them for storage."""
    vectors = np.asarray(made, np.float32)
    expected = f"({count}, {width or 'numbers'})"
    if vectors.ndim != 2 or len(vectors) != count or vectors.shape[1] != (width or vectors.shape[1]):
        raise ConfigError(
            f"the teacher gave an array of shape {vectors.shape} for {count} texts, expected {expected}"
        )
    if not np.isfinite(vectors).all():
        raise ConfigError("the teacher gave a vector with NaN or infinity, expected finite numbers")
    return vectors.astype(np.float16)


@lru_cache(maxsize=64)
def _sha256_of(path: Path, size: int, changed: int) -> str:
    return file_sha256(path)


def _sha256(path: Path) -> str:
    """Hash of a file, cached by size and modification time: a run opens a directory once per collection."""
    stat = path.stat()
    return _sha256_of(path, stat.st_size, stat.st_mtime_ns)


def _write_header(folder: Path, teacher: str, width: int, count: int | None) -> None:
    """Writes the teacher's hash and, once all vectors exist (`count`), their number and the files' hashes."""
    header: dict[str, Any] = {"format": 1, "teacher": teacher, "width": width}
    if count is not None:
        header |= {"count": count, "files": {name: _sha256(folder / name) for name in (VECTORS, KEYS)}}
    temporary = folder / f".{VECTORS_HEADER}"
    temporary.write_text(json.dumps(header) + "\n", encoding="utf-8")
    temporary.replace(folder / VECTORS_HEADER)
