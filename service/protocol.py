"""uvicorn's HTTP/1.1 protocol with bounds on what a client may take for itself, and word of clients that leave.

What uvicorn leaves open: headers of any length (joined at quadratic cost), headers, bodies and readers of any slowness,
any number of requests ahead of their answers, and offers to upgrade, at which its parser stops although nobody upgrades.
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

__all__ = ["MAX_HEAD_BYTES", "BoundedProtocol"]

MAX_HEAD_BYTES = 64 << 10
"""Most bytes of request line and headers, or of trailers, that may wait for their end."""
MAX_HEAD_S = 10
"""Longest that headers, or the rest of a body that was refused, may take, in seconds."""
MAX_WRITE_S = 10
"""Longest that a client may leave an answer unread, in seconds."""
LAST_REQUEST_S = 1.0
"""How long an idle connection stays open for a last request, once the server ends, in seconds."""
MAX_AHEAD = 64
"""Most requests that may wait on one connection for those before them."""
_UPGRADE_HEADERS = (b"upgrade", b"connection", b"http2-settings")


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _serving: Any = None
    """The request that is being answered; uvicorn's `cycle` is the one that was read last."""
    _replaying = False
    _is_broken = False
    _last_word: GlowError | None = None
    """What is said of bytes that are refused, once the requests before them are answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client came."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Parses what came, then looks how much of it still waits for the end of its headers."""
        if self._is_broken:
            return  # nobody can tell where the next request would begin
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
            self._start_head_timer()  # the next request began, or the rest of a refused body comes

    def _decline_upgrade(self, rest: bytes) -> None:
        """Reads on after an offer to upgrade (Java's client offers h2c with each request), as HTTP allows.

        The parser has stopped behind the headers, so a new one reads them again, without the offer and unheard.
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
        """A request's first byte."""
        if not self._replaying:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        if not self._replaying:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if not self._replaying:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers ended: the request starts, or waits for those before it."""
        if self._replaying:
            return
        self._stop_head_timer()
        self._head_bytes = 0
        self._check_head()
        if self.parser.get_method() == b"CONNECT":  # it asks for a tunnel, which ends the parsing of HTTP
            raise ValueError("CONNECT is for proxies")
        if (
            len(self.pipeline) >= MAX_AHEAD
        ):  # the parser makes it a 400, behind the responses to those before it
            raise ValueError("too many requests at once on one connection")
        super().on_headers_complete()

    def _check_head(self) -> None:
        """Refuses what two servers in a row might read differently; the parser makes an error here a 400."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ValueError("only HTTP/1.0 and HTTP/1.1 are spoken here")
        headers = self.scope["headers"]
        hosts = sum(name == b"host" for name, _ in headers)
        if hosts > 1 or (version == "1.1" and not hosts):
            raise ValueError("a request has one Host")
        codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise ValueError("the only transfer coding is chunked")
        for once in (b"content-type", b"content-encoding"):
            if sum(name == once for name, _ in headers) > 1:
                raise ValueError("a header that may come once came twice")

    def on_body(self, body: bytes) -> None:
        """A part of the body; its size is the app's concern."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request ended."""
        self._head_bytes = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._serving = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """A request is answered: the next one starts, or what was behind the last one is refused."""
        super().on_response_complete()
        if self._last_word is not None and not self.pipeline and self._serving.response_complete:
            self._say_and_close(self._last_word)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(MAX_WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._stop_write_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """The server ends: a request that is on its way to an idle connection is still answered, as its last one."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(LAST_REQUEST_S, super().shutdown)
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """The client was idle for too long; closing in order would wait for a buffer that it does not read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left: its request, if one waits in a queue, need not be worked on."""
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
        """Answers bytes that are no HTTP."""
        self._refuse(MalformedHttpError("the bytes are no HTTP/1.1 request"))

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
            self.transport.close()  # the rest of a body that nobody reads

    def _refuse(self, error: GlowError) -> None:
        """Answers in the app's place and closes; a whole request that is in work is answered first, and then closes."""
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
