"""Formats of files, and decompression of gzip and zstd in bounded memory, which tells a damaged file from a complete one.

The first bytes of a file decide its format; its name only sets an expectation.
"""

import codecs
import gzip
import importlib
import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, cast

from glow.errors import ConfigError, DependencyError, InputError

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
    """The plain bytes of a compressed file, `file` itself if it is plain.

    Reading raises EOFError if the file is cut off, and OSError or `zlib.error` if it is damaged.
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
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._file.readinto(buffer))
        except self._error as error:
            raise OSError(str(error)) from error


_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_INVALID = "glow-invalid"
_HIGH = bytes(range(0x80, 0x100))


def _invalid(error: UnicodeError) -> tuple[str | bytes, int]:
    """Marks what cannot be decoded by a byte that UTF-8 never has, so that its row is rejected."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    return b"\xff", cast(UnicodeEncodeError, error).end


codecs.register_error(_INVALID, _invalid)


def check_encoding(name: str) -> str:
    """The name of an encoding of text; an unknown one is refused."""
    try:
        b"a".decode(name, "replace")
    except (LookupError, UnicodeError, ValueError) as error:
        raise ConfigError(
            f"--encoding {name}: no such encoding of text; some are windows-1252, iso-8859-2 and utf-16"
        ) from error
    return name


def decoded(file: BinaryIO, encoding: str) -> BinaryIO:
    """Text as UTF-8, in bounded memory. A byte order mark decides before `encoding`."""
    start = cast(io.BufferedReader, file).peek(4)[:4]
    name = next((name for mark, name in _MARKS.items() if start.startswith(mark)), encoding or "utf-8")
    if codecs.lookup(name).name == "utf-8":
        return file
    with suppress(UnicodeDecodeError):
        start = cast(io.BufferedReader, file).peek(STEP_BYTES)
        if not codecs.getincrementaldecoder("utf-8")().decode(start).isascii():
            return file  # UTF-8, whatever was asked for: a later export may have another encoding
    decoder = codecs.getincrementaldecoder(name)(_INVALID)

    def convert(data: bytes) -> bytes:
        try:
            return decoder.decode(data, not data).encode(errors=_INVALID)
        except UnicodeError as error:
            raise OSError(f"it is not {name}: {error}") from error

    return converted(file, convert)


def one_line(error: BaseException) -> str:
    """The text of a third-party error on one line, or its type if it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def encoding_hint(data: bytes) -> str:
    """What to do about bytes that are not UTF-8."""
    high = len(data) - len(data.translate(None, _HIGH))
    if 2 * high > len(data) or b"\0" in data or "\ufffd" in data.decode("windows-1252", "replace"):
        return "--encoding NAME names the encoding of the file"
    return "looks like windows-1252: --encoding windows-1252"


def converted(
    file: BinaryIO,
    convert: Callable[[bytes], bytes],  # called with nothing at the end
) -> BinaryIO:
    """A file whose bytes are converted in small steps."""
    return cast(BinaryIO, io.BufferedReader(_Converted(file, convert), STEP_BYTES))


class _Converted(io.RawIOBase):
    def __init__(self, file: BinaryIO, convert: Callable[[bytes], bytes]) -> None:
        self._file, self._convert = file, convert
        self._rest, self._is_whole = b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and not self._is_whole:
            data = self._file.read(STEP_BYTES)
            self._is_whole = not data
            self._rest = self._convert(data)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
