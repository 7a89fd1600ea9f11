"""A real HTTP server that answers by a script, and both clients behind one face."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from glow.client import AsyncGlowClient, GlowClient

ANSWER: dict[str, Any] = {
    "request_id": "r1",
    "took_ms": 1.5,
    "degraded": [],
    "index": {"version": "v1", "model": "toy@sha256:0"},
    "query": {"text": "bees", "tokens": 3, "truncated": False, "terms": []},
    "hits": [{"rank": 1, "id": "a/b", "score": 0.5, "scores": {"dense": 0.5}, "fields": {}, "metadata": {}}],
    "timings_ms": {"search": 0.5},
}


@dataclass
class Reply:
    """What the stub does with one request.

    Attributes:
        status: HTTP status.
        body: JSON to send, or bytes as they are.
        headers: headers to add; one that is called is asked for its value when the answer is sent.
        after_s: how long to wait first.
        cut: close the connection after these many bytes of the body; -1 before any answer.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str | Callable[[], str]] = field(default_factory=dict)
    after_s: float = 0.0
    cut: int | None = None


@dataclass
class Seen:
    """One request that came: when by a clock that never goes back, when by the calendar, and what."""

    at_s: float
    date: datetime
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Stub(ThreadingHTTPServer):
    """Answers requests with the replies of its script in turn; the last one stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Reply] = [Reply(body=ANSWER)]
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def _answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(sent) if sent else None
        self.server.seen.append(
            Seen(time.monotonic(), datetime.now(UTC), self.command, self.path, headers, body)
        )
        script = self.server.script
        reply = script.pop(0) if len(script) > 1 else script[0]
        time.sleep(reply.after_s)
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        if reply.cut == -1:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(content)), **reply.headers}.items():
            self.send_header(name, value() if callable(value) else value)
        self.end_headers()
        self.wfile.write(content[: reply.cut])
        self.close_connection = reply.cut is not None

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A server that answers by its script, a good search result unless told otherwise."""
    server = Stub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


Caller = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    """Calls one method of a new client of either kind: `call(url, "search", "bees", client={"api_key": "k"})`.

    Iterators come back as lists.
    """

    def run(url: str, method: str, *args: Any, client: dict[str, Any] | None = None, **options: Any) -> Any:
        if request.param == "async":
            return asyncio.run(_call_async(url, method, args, client or {}, options))
        with GlowClient(url, **(client or {})) as caller:
            found = getattr(caller, method)(*args, **options)
            return list(found) if hasattr(found, "__next__") else found

    return run


async def _call_async(
    url: str, method: str, args: Any, client: dict[str, Any], options: dict[str, Any]
) -> Any:
    async with AsyncGlowClient(url, **client) as caller:
        found = getattr(caller, method)(*args, **options)
        return [item async for item in found] if hasattr(found, "__anext__") else await found


@pytest.fixture
def problem() -> Callable[..., Reply]:
    """A problem document with this status, code and detail."""

    def make(
        status: int, code: str, detail: str = "why", headers: dict[str, Any] | None = None, **more: Any
    ) -> Reply:
        body = {"status": status, "code": code, "detail": detail, "request_id": "r7", "errors": [], **more}
        return Reply(status, body, {"Content-Type": "application/problem+json", **(headers or {})})

    return make


@pytest.fixture
def reply() -> type[Reply]:
    """What a script is made of."""
    return Reply


@pytest.fixture
def answer() -> dict[str, Any]:
    """A good search result, to change."""
    return json.loads(json.dumps(ANSWER))
