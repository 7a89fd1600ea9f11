"""uvicorn's HTTP/1.1 protocol with limits per connection, and with notice of clients that disconnect.

uvicorn does not limit the length of headers (joined at quadratic cost), slow headers, bodies and readers, or pipelined
requests. Its parser also stops at an `Upgrade` header, although nobody upgrades.
"""

import asyncio
import secrets
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from glow.errors import GlowError
from glow_service.api import SCOPE_KEY, RequestContext, problem_response
from glow_service.errors import HeadersTooLargeError, HeadersTooLateError, MalformedHttpError

MAX_HEAD_BYTES = 64 << 10
"""Largest request line and headers, or trailers, in bytes."""
MAX_HEAD_S = 10
"""Time limit for headers, or for the rest of a refused body, in seconds."""
MAX_WRITE_S = 10
"""Longest time that a client may not read its response, in seconds."""
LAST_REQUEST_S = 1.0
"""How long an idle connection stays open for a last request at shutdown, in seconds."""
MAX_AHEAD = 64
"""Most waiting pipelined requests of a connection."""
_UPGRADE_HEADERS = (b"upgrade", b"connection", b"http2-settings")


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _serving: Any = None
    """The request in work; uvicorn's `cycle` is the one that was read last."""
    _replaying = False
    _is_broken = False
    _last_word: GlowError | None = None
    """Error of refused bytes, to be sent after the responses to earlier requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when a client connects."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Parses received bytes, then checks the size of incomplete headers."""
        if self._is_broken:
            return  # the start of the next request is unknown
        self._unset_keepalive_if_required()
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            self._decline_upgrade(data[stop.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("")
        if self.transport.is_closing():
            return
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(
                HeadersTooLargeError(f"the headers exceed {MAX_HEAD_BYTES} bytes; send fewer or shorter ones")
            )
        elif self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()  # for the next request, or for the rest of a refused body

    def _decline_upgrade(self, rest: bytes) -> None:
        """Ignores an `Upgrade` header, as HTTP allows (Java's client sends one with each request).

        The parser has stopped after the headers. A new one reads them again without the upgrade; its events are ignored.
        """
        kept = [pair for pair in self.scope["headers"] if pair[0] not in _UPGRADE_HEADERS]
        lines = [self.scope["method"].encode() + b" " + self.url + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in kept]
        self.parser = httptools.HttpRequestParser(self)
        self.cycle.more_body = True
        self._replaying = True
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")
        self._replaying = False
        self._head_bytes = 0
        if rest:
            self.data_received(rest)

    def on_message_begin(self) -> None:
        """Called at a request's first byte."""
        if not self._replaying:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Called with a part of the URL."""
        if not self._replaying:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called with a header."""
        if not self._replaying:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Called at the end of the headers: the request starts, or waits for earlier ones."""
        if self._replaying:
            return
        self._stop_head_timer()
        self._head_bytes = 0
        self._check_head()
        if self.parser.get_method() == b"CONNECT":  # a tunnel would end the parsing of HTTP
            raise ValueError("CONNECT is for proxies")
        if (
            len(self.pipeline) >= MAX_AHEAD
        ):  # the parser turns it into a 400, after the responses to earlier requests
            raise ValueError("too many requests at once on one connection")
        super().on_headers_complete()

    def _check_head(self) -> None:
        """Refuses headers that a proxy might read differently; the parser turns an error here into a 400."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ValueError("only HTTP/1.0 and HTTP/1.1 are supported")
        headers = self.scope["headers"]
        hosts = sum(name == b"host" for name, _ in headers)
        if hosts > 1 or (version == "1.1" and not hosts):
            raise ValueError("a request must have exactly one Host")
        codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise ValueError("the only transfer coding is chunked")
        for once in (b"content-type", b"content-encoding"):
            if sum(name == once for name, _ in headers) > 1:
                raise ValueError(f"the header {once.decode()} is repeated")

    def on_body(self, body: bytes) -> None:
        """Called with a part of the body; the app limits its size."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called at the end of a request."""
        self._head_bytes = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._serving = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Called after a response: the next request starts, or refused bytes get their response."""
        super().on_response_complete()
        if self._last_word is not None and not self.pipeline and self._serving.response_complete:
            self._say_and_close(self._last_word)

    def pause_writing(self) -> None:
        """Called if the client reads too slowly; starts the write timer."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(MAX_WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Called when the client has read; stops the write timer."""
        self._stop_write_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """Called at shutdown: an idle connection may still receive and answer one last request."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(LAST_REQUEST_S, super().shutdown)
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Called if the connection was idle for too long; an orderly close would wait for the unread buffer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the client disconnects: cancels its waiting requests."""
        super().connection_lost(exc)
        self._stop_head_timer()
        self._stop_write_timer()
        self.pipeline.clear()
        cycle = self._serving
        if cycle is None or cycle.response_complete:
            return
        cycle.disconnected = True
        cycle.message_event.set()
        context = cycle.scope.get(SCOPE_KEY)
        if isinstance(context, RequestContext):
            context.leave()

    def send_400_response(self, msg: str) -> None:
        """Responds to bytes that are not HTTP."""
        self._refuse(MalformedHttpError("the bytes are not an HTTP/1.1 request"))

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(MAX_HEAD_S, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._head_bytes or self.cycle is None:
            self._refuse(
                HeadersTooLateError(f"the headers did not end within {MAX_HEAD_S} s; send them faster")
            )
        else:
            self.transport.close()  # the rest of a refused body is still arriving

    def _refuse(self, error: GlowError) -> None:
        """Sends an error in place of the app and closes the connection, after the response to a request in work."""
        self._is_broken = True
        cycle = self.cycle
        if self.pipeline:
            self._last_word = error
            return
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive = False
            return
        is_cut = (
            cycle is not None and cycle is self._serving and cycle.more_body and not cycle.response_started
        )
        if is_cut:
            context = cycle.scope.get(SCOPE_KEY)
            if isinstance(context, RequestContext):
                context.leave()
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or cycle.response_complete or is_cut:
            self._say_and_close(error)
        else:
            self.transport.close()

    def _say_and_close(self, error: GlowError) -> None:
        if not self.transport.is_closing():
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
