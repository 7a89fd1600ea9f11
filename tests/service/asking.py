"""What tests ask of a service, and how they start one in a thread of their own process."""

import asyncio
import contextlib
import functools
import gc
import hashlib
import socket
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import typer
from click.testing import Result
from typer.testing import CliRunner

from glow.artifact import IndexRoot
from glow.contract import Problem, SearchResult
from glow.index import Index
from glow_service.state import Service
from glow_service.telemetry.metrics import Metrics
from tests.records import read_whole

QUERY = "how do bees find the way home"
REST = b'ry": "how do bees find the way home"}'
BuildIndex = Callable[..., Path]
Serve = Callable[..., AbstractContextManager[httpx.Client]]
"""`serve(root, wait=True, **settings)`, the fixture: a client of a service, ready when the block begins."""
ServeOpen = Callable[..., AbstractContextManager[tuple[httpx.Client, Service]]]


def live_index(root: Path) -> Index:
    """The live version of an index root."""
    return Index.open(IndexRoot(root).folder(IndexRoot(root).current()))


def ask(client: httpx.Client, query: str = QUERY, **more: Any) -> dict[str, Any]:
    """The response to a search, which has the shape of the contract; every candidate matches if the test does not say."""
    response = client.post("/search", json={"query": query, "match": "any", **more})
    assert response.status_code == 200, response.text
    read_whole(response.content, SearchResult)
    return response.json()


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each for name, each in answer.items() if name not in ("request_id", "took_ms", "timings_ms")
    }


def samples(metrics: httpx.Client | bytes) -> dict[str, float]:
    """What a service or a text of metrics says, by names with labels."""
    text = metrics if isinstance(metrics, bytes) else metrics.get("/metrics").content
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def counts(metrics: Metrics, tier: str = "local", kind: str = "response") -> dict[str, int]:
    """Events of the cache, in the process or in Redis, that happened at all."""
    events = [event for family in metrics.cache_events.collect() for event in family.samples]
    found = [each for each in events if (each.labels["tier"], each.labels["kind"]) == (tier, kind)]
    return {each.labels["event"]: int(each.value) for each in found if each.value and "_total" in each.name}


def is_answered(url: str) -> bool:
    """Whether a search is answered there, over a connection of its own."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.post(f"{url}/search", json={"query": "bees", "top_k": 5}).status_code == 200
    return False


def half_search(client: httpx.Client) -> socket.socket:
    """A connection whose search has sent its head and a part of its body; the rest is `REST`."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=30)
    head = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % len(b'{"que' + REST) + b'{"que')
    return connection


def ids(result: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in result["hits"]]


def assert_problem(response: httpx.Response, status: int, code: str) -> Problem:
    """The problem of a response, which must have this status and code."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = read_whole(response.content, Problem)
    assert (problem.status, problem.code, problem.type) == (status, code, f"/problems/{code}")
    assert problem.detail and problem.request_id == response.headers["x-request-id"]
    return problem


def sha256(key: str) -> str:
    """The hash of a key, as settings have it."""
    return hashlib.sha256(key.encode()).hexdigest()


def tenants(folder: Path, **filters: str) -> dict[str, str]:
    """Settings of a key `key of NAME` for each name, which sees the documents of its filter (in TOML)."""
    path = folder / "tenants.toml"
    path.write_text("".join(f"[{name}]\nfilter = {{ {chosen} }}\n" for name, chosen in filters.items()))
    keys = ",".join(f"{name}:{sha256(f'key of {name}')}" for name in filters)
    return {"api_keys": keys, "tenants": str(path)}


def invoke(command: Any, *arguments: object, **environment: str) -> Result:
    """What a command of `glow` does with these arguments, in this process."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return CliRunner().invoke(app, [*map(str, arguments)], env=environment)


def watched(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine as a test; it may not hang, nor leave a task, nor an error that nobody looked at."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        unseen: list[dict[str, Any]] = []

        async def work() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
            async with asyncio.timeout(60):
                await test(*arguments, **fixtures)
            gc.collect()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(work())
        assert not unseen

    return run
