"""Time and size limits of one attempt: httpx bounds each read alone, so an attempt could last forever."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx

from glow.client.errors import InvalidResponseError

__all__ = ["MAX_RESPONSE_BYTES", "Body", "bound_streams", "ends_within"]

MAX_RESPONSE_BYTES = 64 << 20
_until: ContextVar[float] = ContextVar("until", default=math.inf)
"""End of this thread's attempt, in `time.monotonic()`."""


class Body:
    """Collects the decoded body of a response.

    Args:
        response: the response, of which the head was received.
        most_bytes: largest body.
    """

    def __init__(self, response: httpx.Response, most_bytes: int) -> None:
        self._response, self._most_bytes = response, most_bytes
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Adds received bytes.

        Raises:
            InvalidResponseError: if the body gets too long.
            httpx.ReadTimeout: if the attempt's time is over.
        """
        self._data += data
        if len(self._data) > self._most_bytes:
            raise InvalidResponseError(
                f"{self._response.url} returned more than {self._most_bytes} bytes; request less, "
                "or raise max_response_bytes"
            )
        _left_s()

    def whole(self) -> httpx.Response:
        """The response with its body."""
        gone = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in self._response.headers.multi_items() if name not in gone]
        return httpx.Response(
            self._response.status_code,
            headers=headers,
            content=bytes(self._data),
            request=self._response.request,
        )


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Limits the time of all reads and writes that this thread does in the block."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def _left_s() -> float:
    left_s = _until.get() - time.monotonic()
    if left_s <= 0:
        raise httpx.ReadTimeout("the response was not complete in time")
    return left_s


def _bounded(timeout: float | None) -> float:
    left_s = _left_s()
    return left_s if timeout is None else min(timeout, left_s)


def bound_streams(http: httpx.Client) -> None:
    """Makes the connections of a new client respect `ends_within`.

    httpx has no hook for it, so this changes private members of its transports. Other transports stay unchanged:
    they bound each read, and `Body.add` checks the time between two parts of a body.
    """
    for transport in (http._transport, *http._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)
        if hasattr(pool, "_network_backend"):
            pool._network_backend = _Backend(pool._network_backend)


class _Backend:
    """Makes connections whose every step ends in time; same arguments as httpcore's backend."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> "_Stream":
        return _Stream(self._backend.connect_tcp(host, port, timeout=_bounded(timeout), **options))

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> "_Stream":
        return _Stream(self._backend.connect_unix_socket(path, timeout=_bounded(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream:
    """A connection; each step may take at most the remaining time of the attempt."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._stream.read(max_bytes, timeout=_bounded(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout=_bounded(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout=_bounded(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
