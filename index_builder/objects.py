"""Files that are not on this machine: `s3://`, `gs://`, `az://` and `https://`, by fsspec and its packages (extra `objects`).

Credentials and endpoints are what those packages read from the environment (`AWS_…`, `GOOGLE_APPLICATION_CREDENTIALS`,
`AZURE_STORAGE_…`); nothing of them stands in an index.
"""

import importlib
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from glow.errors import BuildError, ConfigError, DependencyError, InputError

__all__ = ["RemoteFile", "is_remote", "list_remote", "write_remote"]

T = TypeVar("T")
_URL = re.compile(r"(s3|gs|az|abfs|https?)://.+")
_READ_ONLY = ("http", "https")
STEP_BYTES = 1 << 20


def is_remote(text: str) -> bool:
    """Whether a path means a file elsewhere."""
    return _URL.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file elsewhere.

    Attributes:
        url: where it is.
    """

    url: str

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.url.partition("?")[0].rstrip("/").rsplit("/", 1)[-1]

    @property
    def identity(self) -> tuple[str, int, str]:
        """Where it is, its size, and what changes with its content (an ETag, a time); 0 and "" where the server says neither.

        Raises:
            InputError: if it is not there or cannot be reached.
        """
        info = self._info()
        version = (
            info.get("ETag") or info.get("etag") or info.get("LastModified") or info.get("updated") or ""
        )
        return self.url, int(info.get("size") or 0), str(version)

    def open(self) -> io.BufferedReader:
        """Its bytes, from the start; what fails on the way is an OSError.

        Raises:
            InputError: if it is not there or cannot be reached.
        """
        system, path = _system(self.url)
        file = _told(self.url, lambda: system.open(path, "rb"))
        return io.BufferedReader(_Raw(file, self.url), STEP_BYTES)

    def _info(self) -> dict[str, Any]:
        system, path = _system(self.url)
        return cast(dict[str, Any], _told(self.url, lambda: system.info(path)))


def list_remote(url: str) -> list[RemoteFile] | None:
    """The files in a folder elsewhere, by name; None where the URL is a file.

    Raises:
        InputError: if there is nothing, or it cannot be reached.
        DependencyError: if the package for it is not installed.
    """
    if url.startswith(_READ_ONLY):
        return None  # a server's page of links is no folder
    system, path = _system(url)
    system.invalidate_cache()
    if not _told(url, lambda: system.isdir(path)):
        _told(url, lambda: system.info(path))
        return None
    protocol = url.partition("://")[0]
    found = _told(url, lambda: system.find(path))
    return [RemoteFile(f"{protocol}://{system._strip_protocol(each)}") for each in sorted(found)]


@contextmanager
def write_remote(url: str) -> Iterator[BinaryIO]:
    """A new file elsewhere, which is there once the block ends without an error, and not before.

    Raises:
        ConfigError: if nothing can be written there.
        BuildError: if it fails.
        DependencyError: if the package for it is not installed.
    """
    if url.startswith(_READ_ONLY):
        raise ConfigError(f"{url} can be read alone; write to s3://, gs://, az:// or a file")
    system, path = _system(url)
    try:
        file = _Writer(system.open(path, "wb"))
        try:
            yield cast(BinaryIO, file)
        except BaseException:
            file.discard()
            raise
        file.close()
    except OSError as error:
        raise BuildError(f"cannot write {url}: {_reason(error)}") from error


class _Writer:
    """What fsspec opened for writing; its packages' errors as OSError."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        """Writes all of it."""
        return int(self._guarded(self._file.write, data))

    def flush(self) -> None:
        """Nothing: parts go when they are large enough."""

    def close(self) -> None:
        """Sends what is left; the file is there then."""
        self._guarded(self._file.close)

    def discard(self) -> None:
        """Drops what was sent: a close would make a file of it."""
        self._file.closed = True
        _try(self._file.discard)

    def _guarded(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except OSError:
            raise
        except Exception as error:
            raise OSError(_reason(error)) from error


class _Raw(io.RawIOBase):
    """What fsspec opened; its packages' errors as OSError, the one that readers of files know."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """As the server can."""
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves; returns the place."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """The place."""
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer as far as data is there."""
        try:
            data = self._file.read(len(buffer))
        except Exception as error:
            raise OSError(_reason(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Ends the connection."""
        _try(self._file.close)
        super().close()


def _system(url: str) -> tuple[Any, str]:
    try:
        fsspec = importlib.import_module("fsspec")
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise DependencyError(
            f"reading {url.partition('://')[0]}:// needs {error.name or 'fsspec'}: install the extra `objects` "
            "(pip install 'glow-retrieval[objects]')"
        ) from error
    return system, cast(str, path)


def _told(url: str, call: Callable[[], T]) -> T:
    """What a call answers; whatever its package raises as ours: each has errors of its own."""
    try:
        return call()
    except FileNotFoundError as error:
        raise InputError(f"nothing is at {url}") from error
    except Exception as error:
        raise InputError(
            f"cannot read {url}: {_reason(error)}; see that it can be reached and what the credentials allow"
        ) from error


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _try(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: S110 - it failed already, and that is told
        pass
