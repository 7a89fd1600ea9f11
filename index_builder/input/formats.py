"""Formats of files, and decompression of gzip and zstd in bounded memory, which tells a damaged file from a complete one.

The first bytes of a file decide its format; its name only sets an expectation.
"""

import gzip
import importlib
import io
from typing import Any, BinaryIO, cast

from glow.errors import DependencyError, InputError

GZIP, ZSTD, PARQUET, ARROW = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARRO"
SUFFIXES = {".gz": GZIP, ".zst": ZSTD, ".parquet": PARQUET, ".arrow": ARROW, ".feather": ARROW}
PACKAGES = {ZSTD: "backports.zstd", PARQUET: "pyarrow", ARROW: "pyarrow"}
STEP_BYTES = 1 << 16


def format_of(
    start: bytes,  # its first four bytes, or fewer in a shorter file
    name: str,
) -> bytes:
    """The format by the first bytes: `GZIP`, `ZSTD`, `PARQUET`, `ARROW`, or empty for plain lines."""
    magic_bytes = next((magic for magic in (GZIP, ZSTD, PARQUET, ARROW) if start.startswith(magic)), b"")
    suffix = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")
    if suffix and start and magic_bytes != SUFFIXES[suffix]:
        raise InputError(
            f"{name} is not a {suffix} file: it begins with {start.hex(' ')}, expected {SUFFIXES[suffix].hex(' ')}; "
            "fetch it again, or name it after what it holds"
        )
    return magic_bytes


def require_package(kind: bytes, name: str) -> Any:
    """The package that reads a format; None if Python does."""
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
    """The plain bytes of a compressed file; `file` itself if it is plain.

    Reading the result raises EOFError if the file is cut off, and OSError, `zlib.error` or zstd's own error if it is
    damaged; `is_damage` recognizes them.
    """
    if kind == GZIP:
        return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    if kind == ZSTD:
        zstd = require_package(kind, name)
        return cast(BinaryIO, io.BufferedReader(_ZstdReader(zstd.ZstdFile(file), zstd.ZstdError), STEP_BYTES))
    return file


class _ZstdReader(io.RawIOBase):
    """A zstd file whose own error becomes an OSError, which file readers expect."""

    def __init__(self, file: Any, error: type[Exception]) -> None:
        self._file, self._error = file, error

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer."""
        try:
            return int(self._file.readinto(buffer))
        except self._error as error:
            raise OSError(str(error)) from error
