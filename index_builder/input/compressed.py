"""Compressed input: gzip and zstd as plain bytes, in bounded memory, and a damaged file told from one that ends.

What a file is, its first bytes say; its name only says what to expect of it.
"""

import gzip
import importlib
import io
from collections.abc import Generator
from typing import Any, BinaryIO, cast

from glow.errors import DependencyError, InputError

__all__ = ["ARROW", "GZIP", "PARQUET", "ZSTD", "decompressed", "format_of", "require_package"]

GZIP, ZSTD, PARQUET, ARROW = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARRO"
SUFFIXES = {".gz": GZIP, ".zst": ZSTD, ".parquet": PARQUET, ".arrow": ARROW, ".feather": ARROW}
PACKAGES = {ZSTD: "zstandard", PARQUET: "pyarrow", ARROW: "pyarrow"}
SKIPPABLE = range(0x184D2A50, 0x184D2A60)
"""Magic numbers of zstd frames that hold no data (RFC 8878, 3.1.2)."""
RUN_LENGTH = 1
"""Kind of a zstd block that is one byte, repeated (RFC 8878, 3.1.1.2.2)."""
STEP_BYTES = 1 << 16


def format_of(start: bytes, name: str) -> bytes:
    """What a file is by its first bytes: `GZIP`, `ZSTD`, `PARQUET`, `ARROW`, or empty for plain lines.

    Args:
        start: its first four bytes, or what there is.
        name: its name, whose end may promise a format.

    Raises:
        InputError: if it is not what its name promises.
    """
    magic_bytes = next((magic for magic in (GZIP, ZSTD, PARQUET, ARROW) if start.startswith(magic)), b"")
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    if suffix and start and magic_bytes != SUFFIXES[suffix]:
        raise InputError(
            f"{name} is no {suffix} file: it begins with {start.hex(' ')}, expected {SUFFIXES[suffix].hex(' ')}; "
            "fetch it again, or name it after what it holds"
        )
    return magic_bytes


def require_package(kind: bytes, name: str) -> Any:
    """The package that reads a format; None where Python does.

    Raises:
        DependencyError: if it is not installed.
    """
    package = PACKAGES.get(kind)
    if package is None:
        return None
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DependencyError(
            f"reading {name} needs the package {package}: install the extra `formats` "
            "(pip install 'glow-retrieval[formats]')"
        ) from error


def decompressed(file: BinaryIO, kind: bytes, name: str) -> BinaryIO:
    """The plain bytes of a compressed file; `file` itself where it is plain.

    A reader of the answer gets EOFError where the file is cut off, and OSError, `zlib.error` or zstd's own error where
    it is damaged: `is_damage` knows them.

    Args:
        file: at its start.
        kind: `GZIP`, `ZSTD`, or empty.
        name: for messages.

    Raises:
        DependencyError: if zstd is needed and its package is not installed.
    """
    if kind == GZIP:
        return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    if kind == ZSTD:
        return cast(BinaryIO, io.BufferedReader(_ZstdReader(file, require_package(kind, name)), STEP_BYTES))
    return file


class _ZstdReader(io.RawIOBase):
    """Frames of zstd, one after another; what is asked for bounds what is decompressed at once."""

    def __init__(self, file: BinaryIO, zstandard: Any) -> None:
        self._ends = _FrameEnds(file)
        self._error: type[Exception] = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor()
        self._reader = decompressor.stream_reader(self._ends, STEP_BYTES, read_across_frames=True)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer as far as data is there."""
        try:
            data = self._reader.read(len(buffer))
        except self._error as error:
            raise OSError(str(error)) from error
        if not data and not self._ends.is_whole:
            raise EOFError("the file ends inside a zstd frame")
        buffer[: len(data)] = data
        return len(data)


class _FrameEnds:
    """A file that follows the frames of the zstd in it: the package does not tell a cut-off file from a whole one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._walk = _frames()
        self._wanted = next(self._walk)
        self._held = b""
        self._is_between = True

    @property
    def is_whole(self) -> bool:
        """Whether all that was read ends at the end of a frame."""
        return self._is_between and not self._held

    def read(self, size: int = STEP_BYTES) -> bytes:
        """Reads and follows."""
        data = self._file.read(size)
        held, place = self._held + data, 0
        while len(held) - place >= abs(self._wanted):
            size = abs(self._wanted)
            self._wanted = self._walk.send(held[place : place + size])
            self._is_between = self._wanted < 0
            place += size
        self._held = held[place:]
        return data


def _frames() -> Generator[int, bytes, None]:
    """Asks for the bytes of frames, piece by piece; between frames the number is negative (RFC 8878, 3.1)."""
    while True:
        magic = int.from_bytes((yield -4), "little")
        if magic in SKIPPABLE:
            yield from _skip(int.from_bytes((yield 4), "little"))
            continue
        descriptor = (yield 1)[0]
        is_single, has_checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
        yield (not is_single) + (0, 1, 2, 4)[descriptor & 3] + (is_single, 2, 4, 8)[descriptor >> 6]
        is_last = 0
        while not is_last:
            header = int.from_bytes((yield 3), "little")
            is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
            yield from _skip(1 if kind == RUN_LENGTH else size)
        if has_checksum:
            yield 4


def _skip(size: int) -> Generator[int, bytes, None]:
    while size:
        step = min(size, STEP_BYTES)
        yield step
        size -= step
