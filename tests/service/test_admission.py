"""Admission, deadlines and clients that leave, over real HTTP."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

import glow_service.protocol
from glow_service.app import create_app
from glow_service.protocol import BoundedProtocol
from glow_service.settings import Settings
from glow_service.state import Service

BODY = b'{"query": "how do bees find the way home"}'
HEAD = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

Serve = Callable[..., AbstractContextManager[tuple[httpx.Client, Service]]]


@pytest.fixture
def serve(toy_index: Path) -> Serve:
    """Serves the toy index with these settings from a thread of this process, as `glow serve` would."""

    @contextmanager
    def start(**values: Any) -> Iterator[tuple[httpx.Client, Service]]:
        settings = Settings(index_root=toy_index, **{"default_timeout_ms": 30_000, **values})
        app: FastAPI = create_app(settings, on_failure=lambda: None)
        # A busy machine may leave the client's connection idle for longer than uvicorn's 5 s.
        config = uvicorn.Config(
            app, port=0, http=BoundedProtocol, log_config=None, lifespan="on", timeout_keep_alive=60
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            until(lambda: server.started)
            port = server.servers[0].sockets[0].getsockname()[1]
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                until(lambda: client.get("/readyz").status_code == 200)
                yield client, app.state.service
        finally:
            server.should_exit = True
            thread.join()

    return start


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def open_socket(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=30)


@contextmanager
def busy(service: Service) -> Iterator[None]:
    """Every search thread is occupied, of both work_pools."""
    gate = threading.Event()
    for work_pool in (service.plain, service.bulk):
        for _ in range(work_pool.pool.threads):
            work_pool.pool.submit(gate.wait, 30)
    try:
        yield
    finally:
        gate.set()


def search(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/search", json={"query": "how do bees find the way home", **more})


def test_one_request_too_many_is_refused_at_once_and_operations_answer(serve: Serve) -> None:
    with serve(max_in_flight=2, default_timeout_ms=20_000) as (client, service):
        holders = [open_socket(client) for _ in range(2)]
        for holder in holders:  # a permit is taken before the body is there
            holder.sendall(HEAD % len(BODY) + BODY[:5])
        until(lambda: service.plain.admission.taken == 2)
        started = time.perf_counter()
        refused = search(client)
        assert time.perf_counter() - started < 0.5
        assert refused.status_code == 429
        assert refused.json()["code"] == "overloaded"
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/documents/toy/0").status_code == 429
        for path in ("/healthz", "/readyz", "/metrics", "/info", "/"):
            assert client.get(path).status_code == 200, path
        assert 'glow_rejected_total{reason="overloaded"}' in client.get("/metrics").text
        for holder in holders:
            holder.sendall(BODY[5:])
            assert b"200 OK" in holder.recv(65_536)
            holder.close()
        assert search(client).status_code == 200


def test_every_permit_comes_back_however_a_request_ends(serve: Serve) -> None:
    with serve(max_in_flight=4) as (client, service):
        for content in (b"{", b"[]", b'{"query": ""}', b'{"query": "bees", "top_k": 0}', BODY, b"\xff"):
            client.post("/search", content=content, headers={"Content-Type": "application/json"})
        client.post("/search", content=b"x" * 100_000, headers={"Content-Type": "application/json"})
        client.post("/nowhere", content=BODY)
        client.post("/search/batch", json={"searches": [{"query": "bees"}, {}, {"query": "salmon"}]})
        client.post("/search/batch", json={"searches": []})
        client.post("/v1/embeddings", json={"input": ["bees", " "], "input_type": "query"})
        client.get("/documents/nothing")
        left = open_socket(client)
        left.sendall(HEAD % len(BODY) + BODY[:5])
        until(lambda: service.plain.admission.taken == 1)
        left.close()
        until(lambda: service.plain.admission.taken == 0)
        assert search(client).status_code == 200


def test_a_batch_holds_permits_of_the_bulk_lane_for_its_price(serve: Serve) -> None:
    with serve(max_in_flight=2, default_timeout_ms=20_000) as (client, service):
        searches = [{"query": "bees"}, {"query": "salmon"}, {"query": "camels"}]
        assert client.post("/search/batch", json={"searches": searches[:2]}).status_code == 200
        # What could never be admitted is no matter of trying again.
        assert client.post("/search/batch", json={"searches": searches}).status_code == 422
        assert (
            client.post("/v1/embeddings", json={"input": ["a", "b", "c"], "input_type": "query"}).status_code
            == 422
        )
        service.bulk.admission.enter(1)
        assert client.post("/search/batch", json={"searches": searches[:2]}).status_code == 429
        assert (
            client.post("/v1/embeddings", json={"input": ["a", "b"], "input_type": "query"}).status_code
            == 429
        )
        assert client.post("/v1/embeddings", json={"input": ["a"], "input_type": "query"}).status_code == 200
        assert search(client, explain=True, top_k=5).status_code == 429
        assert search(client).status_code == 200
        service.bulk.admission.leave(1)
        # It costs more than there are permits, and takes them all.
        assert search(client, explain=True, top_k=5).status_code == 200
        until(lambda: service.bulk.admission.taken == service.plain.admission.taken == 0)


def late_requests(service: Service) -> float | None:
    return service.metrics.registry.get_sample_value("glow_rejected_total", {"reason": "deadline"})


@pytest.mark.parametrize("given", [{"timeout_ms": 150}, {}])
def test_a_deadline_that_passes_in_the_queue_is_a_504_or_a_partial_answer(
    serve: Serve, given: dict[str, Any]
) -> None:
    with serve(default_timeout_ms=150) as (client, service), busy(service):
        started = time.perf_counter()
        late = search(client, **given)
        assert 0.1 < time.perf_counter() - started < 5
        assert (late.status_code, late.json()["code"]) == (504, "deadline")
        assert "150 ms" in late.json()["detail"]
        partial = search(client, allow_partial=True, **given)
        assert partial.status_code == 200
        assert partial.json()["degraded"] == ["timeout"]
        assert partial.json()["hits"] == []  # it was not ranked yet
        assert late_requests(service) == 2
        searches = [{"query": f"bees {number}", "allow_partial": number == 2, **given} for number in range(3)]
        batch = client.post("/search/batch", json={"searches": searches}).json()
        assert [result["status"] for result in batch["results"]] == [504, 504, 200]
        assert late_requests(service) == 3, "a request counts once, however many of its searches were late"


@pytest.mark.parametrize("cached", [True, False])
def test_after_the_deadline_a_partial_answer_has_what_was_ranked(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """Reasons that take too long stand for any stage after the ranking."""

    def slow(*arguments: Any, **options: Any) -> None:
        time.sleep(2.5)
        raise AssertionError("nobody waits for this")

    monkeypatch.setattr("glow_service.search.session.explain", slow)
    with serve(cache_entries=100 if cached else 0) as (client, _):
        whole = search(client, top_k=3).json()
        asked = {"top_k": 3, "explain": True, "highlight": True, "timeout_ms": 1_500}
        partial = search(client, allow_partial=True, **asked)
        assert partial.status_code == 200, partial.text
        found = partial.json()
        assert found["degraded"] == ["timeout"]
        kept = ("rank", "id", "score", "scores", "fields", "metadata")
        assert [{name: hit[name] for name in kept} for hit in whole["hits"]] == found["hits"]
        assert found["query"]["terms"] == whole["query"]["terms"]
        assert search(client, **asked).status_code == 504
        monkeypatch.undo()
        again = search(client, allow_partial=True, **{**asked, "timeout_ms": 30_000}).json()
        assert again["degraded"] == [] and again["hits"][0]["explanation"]


def test_a_deadline_beyond_the_bound_is_refused(serve: Serve) -> None:
    with serve(max_timeout_ms=5_000, default_timeout_ms=5_000) as (client, _):
        refused = search(client, timeout_ms=5_001)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/timeout_ms"
        assert search(client, timeout_ms=5_000).status_code == 200


def test_an_expired_request_is_never_encoded(serve: Serve) -> None:
    with serve(cache_entries=0) as (client, service):
        name = "glow_batch_queries_count"
        with busy(service):
            assert search(client, timeout_ms=50).status_code == 504
            before = service.metrics.registry.get_sample_value(name)
        assert search(client).status_code == 200
        assert service.metrics.registry.get_sample_value(name) == (before or 0) + 1


def test_a_body_that_comes_too_slowly_is_a_504(serve: Serve) -> None:
    with serve(default_timeout_ms=200) as (client, service):
        slow = open_socket(client)
        slow.sendall(HEAD % len(BODY) + BODY[:5])
        assert b"504 Gateway Timeout" in slow.recv(65_536)
        until(lambda: service.plain.admission.taken == 0)


def test_headers_that_come_too_slowly_are_a_408(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glow_service.protocol, "MAX_HEAD_S", 0.2)
    with serve() as (client, _):
        slow = open_socket(client)
        slow.sendall(b"POST /search HTTP/1.1\r\nHost:")
        answer = slow.recv(65_536)
        assert b"408 Request Timeout" in answer
        assert b"header_timeout" in answer
        assert slow.recv(1) == b""


def test_a_client_that_leaves_frees_its_place_and_is_never_searched_for(serve: Serve) -> None:
    with serve(cache_entries=0, default_timeout_ms=20_000) as (client, service), busy(service):
        leaving = open_socket(client)
        leaving.sendall(HEAD % len(BODY) + BODY)
        until(lambda: service.plain.batcher.waiting == 1 or service.plain.batcher.running == 1)
        assert service.plain.admission.taken == 1
        leaving.close()
        until(lambda: service.plain.admission.taken == 0)
        assert client.get("/healthz").status_code == 200
