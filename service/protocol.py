"""uvicorn's HTTP/1.1 protocol with bounds on headers, word of clients that leave, and with problems in place of its plain-text refusals.

httptools takes headers of any length and joins their parts at quadratic cost: without a bound, one request of 100 MB
stops a worker for a minute.
"""

import asyncio
import secrets
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from glow.errors import GlowError
from service.api.context import SCOPE_KEY, RequestContext
from service.api.problems import problem_response
from service.errors import HeadersTooLargeError, HeadersTooLateError, MalformedHttpError

__all__ = ["MAX_HEAD_BYTES", "BoundedProtocol"]

MAX_HEAD_S = 10
"""Longest that the headers of a connection's first request may take, in seconds."""
MAX_HEAD_BYTES = 64 << 10
"""Most bytes of request line and headers, or of trailers, that may wait for their end."""


class BoundedProtocol(HttpToolsProtocol):
    """Refuses a request whose headers do not end."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client came; its headers have a bounded time to come, too."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(MAX_HEAD_S, self._head_is_late)

    def _head_is_late(self) -> None:
        self._refuse(HeadersTooLateError(f"the headers did not end within {MAX_HEAD_S} s; send them faster"))

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def data_received(self, data: bytes) -> None:
        """Parses what came, then looks how much of it still waits for the end of its headers."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(
                HeadersTooLargeError(f"the headers exceed {MAX_HEAD_BYTES} bytes; send fewer or shorter ones")
            )

    def on_headers_complete(self) -> None:
        """The headers ended: the request starts."""
        self._stop_head_timer()
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body; its size is the app's concern."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request ended."""
        self._head_bytes = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left: its request, if one waits in a queue, need not be worked on."""
        super().connection_lost(exc)
        self._stop_head_timer()
        if self.cycle is not None and not self.cycle.response_complete:
            context = self.cycle.scope.get(SCOPE_KEY)
            if isinstance(context, RequestContext):
                context.leave()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are no HTTP."""
        self._refuse(MalformedHttpError("the bytes are no HTTP/1.1 request"))

    def _refuse(self, error: GlowError) -> None:
        """Answers in the app's place, unless it has begun to answer itself, and closes."""
        if self.cycle is None or self.cycle.response_complete:
            request_id = secrets.token_hex(8)
            response = problem_response(error, request_id=request_id, instance="")
            headers = [
                *response.raw_headers,
                (b"x-request-id", request_id.encode()),
                (b"connection", b"close"),
            ]
            phrase = HTTPStatus(response.status_code).phrase
            head = [f"HTTP/1.1 {response.status_code} {phrase}".encode()]
            head += [name + b": " + value for name, value in headers]
            self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()
