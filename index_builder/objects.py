"""Files that are not on this machine: `s3://`, `gs://`, `az://` and `https://`, by fsspec and its packages (extra `objects`).

Credentials and endpoints are what those packages read from the environment (`AWS_…`, `GOOGLE_APPLICATION_CREDENTIALS`,
`AZURE_STORAGE_…`); nothing of them stands in an index.

Those packages bound each receive of a socket at most, so a server that sends a byte now and then would hold a build for
ever: here each step, a block of bytes or a question about a file, has an end of its own.
"""

import importlib
import io
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from glow.errors import BuildError, ConfigError, DependencyError, InputError

__all__ = ["RemoteFile", "is_remote", "list_remote", "write_remote"]

T = TypeVar("T")
_URL = re.compile(r"(s3|gs|az|abfs|https?)://.+")
_READ_ONLY = ("http", "https")
STEP_BYTES = 1 << 20
BLOCK_BYTES = 8 << 20
"""Asked for at once."""
WITHIN_S = 120.0
"""How long one step may take: a block at 70 kB/s."""
LIST_S = 1_800.0
"""How long a folder may take to list: a thousand names a request."""
WRITE_S = 900.0
"""How long one step of writing may take: packages send parts of 50 MiB."""


def is_remote(text: str) -> bool:
    """Whether a path means a file elsewhere."""
    return _URL.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file elsewhere.

    Attributes:
        url: where it is.
        within_s: seconds that each step may take.
    """

    url: str
    within_s: float = WITHIN_S

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
        self._info()  # it has an end, and what it tells is asked for again by opening
        file = _told(
            self.url, lambda: _within(self.within_s, lambda: system.open(path, "rb", block_size=BLOCK_BYTES))
        )
        return io.BufferedReader(_Raw(system, file, path, self.within_s), STEP_BYTES)

    def _info(self) -> dict[str, Any]:
        system, path = _system(self.url)
        return cast(dict[str, Any], _told(self.url, lambda: system.info(path, timeout=self.within_s)))


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
    if not _told(url, lambda: system.isdir(path, timeout=WITHIN_S)):
        _told(url, lambda: system.info(path, timeout=WITHIN_S))
        return None
    protocol = url.partition("://")[0]
    found = _told(url, lambda: system.find(path, timeout=LIST_S))
    paths = (system.unstrip_protocol(each).partition("://")[2] for each in sorted(found))
    return [RemoteFile(f"{protocol}://{path}") for path in paths]


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
        file = _Writer(_within(WRITE_S, lambda: system.open(path, "wb")))
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
            return _within(WRITE_S, lambda: call(*arguments))
        except OSError:
            raise
        except Exception as error:
            raise OSError(_reason(error)) from error


class _Raw(io.RawIOBase):
    """What fsspec opened; its packages' errors as OSError, the one that readers of files know.

    Args:
        system: fsspec's.
        file: that it opened.
        path: of the file, as the system has it.
        within_s: seconds that each read may take.
    """

    def __init__(self, system: Any, file: Any, path: str, within_s: float) -> None:
        self._file, self._within_s = file, within_s
        self._streams = hasattr(file, "r")  # of a web server that sends whole files alone
        if not self._streams:
            # Its own way to fetch has no end in time. Caches, sizes and places stay the package's.
            file.cache.fetcher = partial(_fetch, system, path, within_s)

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
            more = {"timeout": self._within_s} if self._streams else {}
            data = self._file.read(len(buffer), **more)
        except Exception as error:
            raise OSError(_reason(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Ends the connection."""
        _try(self._file.close)
        super().close()


def _fetch(system: Any, path: str, within_s: float, start: int, end: int) -> bytes:
    """Bytes of a file from `start` to before `end`, or as far as it goes."""
    if path.startswith(_READ_ONLY):
        sync = importlib.import_module("fsspec.asyn").sync
        return cast(bytes, sync(system.loop, _fetch_web, system, path, start, end, timeout=within_s))
    data = cast(bytes, system.cat_file(path, start=start, end=end, timeout=within_s))
    if len(data) > end - start:
        raise OSError(f"{len(data)} bytes came, {end - start} were asked for")
    return data


async def _fetch_web(system: Any, url: str, start: int, end: int) -> bytes:
    """As `_fetch`, of a web server, whose word for how much it sends is not taken."""
    session = await system.set_session()
    options = dict(system.kwargs)
    headers = {**options.pop("headers", {}), "Range": f"bytes={start}-{end - 1}"}
    data = bytearray()
    async with session.get(system.encode_url(url), headers=headers, **options) as response:
        if response.status == 416:
            return b""
        response.raise_for_status()
        is_part = response.status == 206
        if start > 0 and not (
            is_part and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        ):
            raise OSError("the server does not send the part of the file that was asked for; fetch it first")
        if is_part and (response.content_length or 0) > end - start:
            raise OSError(f"{response.content_length} bytes come, {end - start} were asked for")
        async for chunk in response.content.iter_chunked(1 << 16):
            data += chunk
            if len(data) >= end - start:
                break
    if is_part and len(data) > end - start:
        raise OSError(f"more came than the {end - start} bytes that were asked for")
    return bytes(data[: end - start])


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Waits for a call for so long; one that is late goes on in its thread, and nobody hears of it.

    Raises:
        TimeoutError: if it is late.
    """
    done: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            done.append((call(), None))
        except BaseException as error:  # for the caller
            done.append((None, error))

    thread = threading.Thread(target=run, name="objects", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        raise TimeoutError(f"no whole response within {seconds:g} s")
    found, error = done[0]
    if error is not None:
        raise error
    return cast(T, found)


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
    if isinstance(error, TimeoutError) and not str(error):
        return "the server sends too slowly, or nothing"
    return " ".join(str(error).split())[:300] or type(error).__name__


def _try(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: S110 - it failed already, and that is told
        pass
