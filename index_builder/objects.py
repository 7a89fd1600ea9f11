"""Remote files at `s3://`, `gs://`, `az://` and `https://`, through fsspec and its packages (extra `objects`).

Those packages read credentials from the environment; no index stores them. They limit the time of a single receive at
most. Here each step, a block of bytes or a request about a file, has a time limit, so no server can stall a build.
"""

import importlib
import io
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from glow.errors import DependencyError, InputError

T = TypeVar("T")
_URL = re.compile(r"(s3|gs|az|abfs|https?)://.+")
_READ_ONLY = ("http", "https")
STEP_BYTES = 1 << 20
BLOCK_BYTES = 8 << 20
"""Bytes per request."""
WITHIN_S = 120.0
"""Time limit of one step: a block at 70 kB/s."""
LIST_S = 1_800.0
"""Time limit for listing a directory, at a thousand names per request."""


def is_remote(text: str) -> bool:
    """Whether a path names a remote file."""
    return _URL.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One remote file."""

    url: str
    within_s: float = WITHIN_S  # time limit of each step, in seconds

    @property
    def name(self) -> str:
        """The last segment of its path."""
        return self.url.partition("?")[0].rstrip("/").rsplit("/", 1)[-1]

    @property
    def identity(self) -> tuple[str, int, str]:
        """Its URL, its size, and an ETag or time that changes with its content; 0 and "" if the server sends neither."""
        info = self._info()
        versions = (info.get(name) for name in ("ETag", "etag", "LastModified", "updated"))
        return self.url, int(info.get("size") or 0), str(next(filter(None, versions), ""))

    def open(self) -> io.BufferedReader:
        """Opens it for reading from the start; later failures raise OSError."""
        system, path = _system(self.url)
        self._info()  # it has a time limit, and opening asks for the same values again
        file = _reported(
            self.url, lambda: _within(self.within_s, lambda: system.open(path, "rb", block_size=BLOCK_BYTES))
        )
        return io.BufferedReader(_Raw(system, file, path, self.within_s), STEP_BYTES)

    def _info(self) -> dict[str, Any]:
        system, path = _system(self.url)
        return cast(dict[str, Any], _reported(self.url, lambda: system.info(path, timeout=self.within_s)))


def list_remote(url: str) -> list[RemoteFile] | None:
    """The files in a remote directory, by name; None if the URL is a file."""
    if url.startswith(_READ_ONLY):
        return None  # a web server's page of links is not a directory
    system, path = _system(url)
    system.invalidate_cache()
    if not _reported(url, lambda: system.isdir(path, timeout=WITHIN_S)):
        _reported(url, lambda: system.info(path, timeout=WITHIN_S))
        return None
    protocol = url.partition("://")[0]
    names = _reported(url, lambda: system.find(path, timeout=LIST_S))
    paths = (system.unstrip_protocol(each).partition("://")[2] for each in sorted(names))
    return [RemoteFile(f"{protocol}://{path}") for path in paths]


class _Raw(io.RawIOBase):
    """A file that fsspec opened; its packages' errors become OSError, which file readers expect."""

    def __init__(self, system: Any, file: Any, path: str, within_s: float) -> None:
        self._file, self._within_s = file, within_s
        self._streams = hasattr(file, "r")  # from a web server that sends only whole files
        if not self._streams:
            # The package's own fetch has no time limit. It still handles caches, sizes and positions.
            file.cache.fetcher = partial(_fetch, system, path, within_s)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        try:
            more = {"timeout": self._within_s} if self._streams else {}
            data = self._file.read(len(buffer), **more)
        except Exception as error:
            raise OSError(_reason(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        with suppress(Exception):  # it failed already, and that is reported
            self._file.close()
        super().close()


def _fetch(system: Any, path: str, within_s: float, start: int, end: int) -> bytes:
    """Bytes of a file from `start` to before `end`, fewer at the file's end."""
    if path.startswith(_READ_ONLY):
        sync = importlib.import_module("fsspec.asyn").sync
        return cast(bytes, sync(system.loop, _fetch_web, system, path, start, end, timeout=within_s))
    data = cast(bytes, system.cat_file(path, start=start, end=end, timeout=within_s))
    if len(data) > end - start:
        raise OSError(f"received {len(data)} bytes, requested {end - start}")
    return data


async def _fetch_web(system: Any, url: str, start: int, end: int) -> bytes:
    """As `_fetch`, from a web server, without trust in the length that it announces."""
    session = await system.set_session()
    options = dict(system.kwargs)
    headers = {**options.pop("headers", {}), "Range": f"bytes={start}-{end - 1}"}
    data = bytearray()
    async with session.get(system.encode_url(url), headers=headers, **options) as response:
        if response.status == 416:
            return b""
        response.raise_for_status()
        is_part = response.status == 206
        content_range = response.headers.get("Content-Range", "") if is_part else ""
        if start > 0 and not content_range.startswith(f"bytes {start}-"):
            raise OSError("the server does not support range requests; download the file first")
        if is_part and (response.content_length or 0) > end - start:
            raise OSError(f"the server sends {response.content_length} bytes, requested {end - start}")
        async for chunk in response.content.iter_chunked(1 << 16):
            data += chunk
            if len(data) >= end - start:
                break
    if is_part and len(data) > end - start:
        raise OSError(f"received more than the {end - start} requested bytes")
    return bytes(data[: end - start])


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Waits for a call with a time limit; a late call continues in its thread and its result is ignored."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # for the caller
            done.set_exception(error)

    threading.Thread(target=run, name="objects", daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(f"no whole response within {seconds:g} s") from error


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


def _reported(url: str, call: Callable[[], T]) -> T:
    """The result of a call; any error of its package becomes a GLOW error, as each package has its own types."""
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
        return "the server sends too slowly or not at all"
    return " ".join(str(error).split())[:300] or type(error).__name__
