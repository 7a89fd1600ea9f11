"""A real HTTP server that answers by a script, and both clients behind one face."""

import asyncio
import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
    """What the stub does with one request."""

    body: Any = field(default_factory=lambda: ANSWER)  # JSON to send, or bytes as they are
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    cut: int | None = None  # close the connection after these many bytes of the body; -1 before any answer


def problem(status: int, code: str, detail: str = "why", retry_after: str = "", **more: Any) -> Reply:
    body = {"status": status, "code": code, "detail": detail, "request_id": "r7", "errors": [], **more}
    headers = {"Content-Type": "application/problem+json"}
    return Reply(body, status, headers | ({"Retry-After": retry_after} if retry_after else {}))


@dataclass
class Seen:
    """One request that came, and when."""

    at_s: float
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Stub(ThreadingHTTPServer):
    """Answers requests with the replies of its script in turn; the last one stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Reply] = [Reply()]
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
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
        self.server.seen.append(Seen(time.monotonic(), self.command, self.path, headers, body))
        script = self.server.script
        reply = script.pop(0) if len(script) > 1 else script[0]
        time.sleep(reply.after_s)
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.close_connection = reply.cut is not None
        if reply.cut == -1:
            return
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: reply.cut])

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


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
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
def answer() -> dict[str, Any]:
    """A good search result, to change."""
    return copy.deepcopy(ANSWER)
