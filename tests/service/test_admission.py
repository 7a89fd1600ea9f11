"""Admission, deadlines, costs, and clients that leave."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from glow.index import Index
from glow.index.vectors import SearchParams
from glow.search import Reranking
from glow.text import Highlighting
from glow_service.errors import DeadlineError
from glow_service.search.clock import Deadline
from glow_service.search.plan import HighlightCall, SearchPlan
from glow_service.search.run import SearchSession
from glow_service.state import Service
from tests.service.asking import REST, ServeOpen, assert_problem, half_search, samples
from tests.until import until


@contextmanager
def busy(service: Service) -> Iterator[None]:
    """Every search thread is occupied."""
    gate, pool = threading.Event(), service.pool
    for _ in range(2 * pool.threads):
        pool.submit(gate.wait, 30)
    for _ in range(pool.threads):
        pool._expensive.submit(gate.wait, 30)
    try:
        yield
    finally:
        gate.set()


def search(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/search", json={"query": "how do bees find the way home", **more})


def test_one_request_too_many_is_refused_at_once_and_operations_answer(serve_open: ServeOpen) -> None:
    with serve_open(max_in_flight=2, default_timeout_ms=20_000) as (client, service):
        holders = [half_search(client) for _ in range(2)]  # a permit is taken before the body is there
        until(lambda: service.pool.admission.taken == 2)
        started = time.perf_counter()
        refused = search(client)
        assert time.perf_counter() - started < 0.5
        assert_problem(refused, 429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/documents/toy/0").status_code == 429
        for path in ("/healthz", "/readyz", "/metrics", "/info", "/"):
            assert client.get(path).status_code == 200, path
        assert 'glow_rejected_total{reason="overloaded"}' in client.get("/metrics").text
        for holder in holders:
            holder.sendall(REST)
            assert b"200 OK" in holder.recv(65_536)
            holder.close()
        assert search(client).status_code == 200


def test_every_permit_comes_back_however_a_request_ends(serve_open: ServeOpen) -> None:
    with serve_open(max_in_flight=4) as (client, service):
        for content in (b"{", b"[]", b'{"query": ""}', b'{"query": "bees", "top_k": 0}', b"\xff"):
            client.post("/search", content=content, headers={"Content-Type": "application/json"})
        client.post("/search", content=b"x" * 100_000, headers={"Content-Type": "application/json"})
        client.post("/nowhere", content=b"{}")
        client.post("/search/batch", json={"searches": [{"query": "bees"}, {}, {"query": "salmon"}]})
        client.post("/search/batch", json={"searches": []})
        client.post("/v1/embeddings", json={"input": ["bees", " "], "input_type": "query"})
        client.get("/documents/nothing")
        left = half_search(client)
        until(lambda: service.pool.admission.taken == 1)
        left.close()
        until(lambda: service.pool.admission.taken == 0)
        assert search(client).status_code == 200


def test_expensive_requests_have_a_quarter_of_the_places(serve_open: ServeOpen) -> None:
    with serve_open(max_in_flight=4, default_timeout_ms=20_000) as (client, service):
        batch = {"searches": [{"query": "bees"}, {"query": "salmon"}]}
        texts = {"input": ["a", "b"], "input_type": "query"}
        assert client.post("/search/batch", json=batch).status_code == 200
        until(lambda: service.pool.expensive.taken == 0)
        service.pool.expensive.enter()
        assert client.post("/search/batch", json=batch).status_code == 429
        assert client.post("/v1/embeddings", json=texts).status_code == 429
        assert search(client, explain=True, top_k=5).status_code == 429
        assert search(client).status_code == 200
        service.pool.expensive.leave()
        assert search(client, explain=True, top_k=5).status_code == 200
        until(lambda: service.pool.expensive.taken == service.pool.admission.taken == 0)


LATE = 'glow_rejected_total{reason="deadline"}'


def test_a_deadline_that_passes_in_the_queue_is_a_504_or_a_partial_answer(serve_open: ServeOpen) -> None:
    with serve_open(default_timeout_ms=100, cache_entries=0) as (client, service):
        with busy(service):
            started = time.perf_counter()
            late = search(client)
            assert 0.07 < time.perf_counter() - started < 5
            assert "100 ms" in assert_problem(late, 504, "deadline").detail
            assert search(client, timeout_ms=50).status_code == 504
            partial = search(client, allow_partial=True).json()
            assert partial["degraded"] == ["timeout"] and partial["hits"] == []  # it was not ranked yet
            assert samples(client)[LATE] == 3
            searches = [{"query": f"bees {number}", "allow_partial": number == 2} for number in range(3)]
            batch = client.post("/search/batch", json={"searches": searches}).json()
            assert [result["status"] for result in batch["results"]] == [504, 504, 200]
            assert samples(client)[LATE] == 4, "a request counts once, however many of its searches were late"
            encoded = samples(client)["glow_batch_queries_count"]
        assert search(client, timeout_ms=20_000).status_code == 200
        assert samples(client)["glow_batch_queries_count"] == encoded + 1, "what is late is never encoded"


def test_after_the_deadline_a_partial_answer_has_what_was_ranked(
    serve_open: ServeOpen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reasons that take too long stand for any stage after the ranking."""

    def slow(*arguments: Any, **options: Any) -> None:
        gate.wait(30)
        raise AssertionError("nobody waits for this")

    gate = threading.Event()
    monkeypatch.setattr("glow_service.search.run.explain", slow)
    with serve_open(cache_entries=100) as (client, _):
        whole = search(client, top_k=3).json()
        asked = {"top_k": 3, "explain": True, "highlight": True, "timeout_ms": 500}
        found = search(client, allow_partial=True, **asked).json()
        assert found["degraded"] == ["timeout"]
        kept = ("rank", "id", "score", "scores", "fields", "metadata")
        assert [{name: hit[name] for name in kept} for hit in whole["hits"]] == found["hits"]
        assert found["query"]["terms"] == whole["query"]["terms"]
        assert search(client, **asked).status_code == 504
        gate.set()
        monkeypatch.undo()
        again = search(client, allow_partial=True, **{**asked, "timeout_ms": 30_000}).json()
        assert again["degraded"] == [] and again["hits"][0]["explanation"]


def test_a_client_that_leaves_frees_its_place_and_is_never_searched_for(serve_open: ServeOpen) -> None:
    with serve_open(cache_entries=0, default_timeout_ms=20_000) as (client, service), busy(service):
        leaving = half_search(client)
        leaving.sendall(REST)
        until(lambda: service.pool.batcher.waiting == 1 or service.pool.batcher.running == 1)
        assert service.pool.admission.taken == 1
        leaving.close()
        until(lambda: service.pool.admission.taken == service.pool.batcher.waiting == 0)
        assert client.get("/healthz").status_code == 200


# A search ends soon after its deadline, because a thread cannot be stopped from outside.


def plan(**more: Any) -> SearchPlan:
    given = {"text": "bees", "top_k": 10, "offset": 0, "candidates": 100, "params": SearchParams()}
    return SearchPlan(**{**given, **more})


OVER = Deadline(0.0)


def test_the_deadline_is_looked_at_before_every_batch_of_explanations(index: Index, monkeypatch: Any) -> None:
    explainer = index.explainer
    assert explainer is not None
    work = explainer.explain_documents

    def explain(documents: object, check: Callable[[], None]) -> object:
        monkeypatch.setattr(session.clock, "_deadline", OVER)  # the time is over while hits are explained
        return work(documents, check)  # type: ignore[arg-type]

    session = SearchSession(index, plan(explain=True, leave_one_out=True))
    monkeypatch.setattr(explainer, "explain_documents", explain)
    monkeypatch.setattr(explainer, "_tower", lambda _: pytest.fail("a batch was encoded"), raising=True)
    monkeypatch.setattr(explainer, "explain_query", lambda _: None)
    with pytest.raises(DeadlineError):
        session.run()


# What is expensive, and who pays.


def test_what_takes_long_is_expensive_and_an_ordinary_search_is_not() -> None:
    snippets = HighlightCall(("url", "title", "anchor", "clicked_queries", "text"), Highlighting(2, 200))
    everything = HighlightCall(("title", "text"), Highlighting(10, 2_000))
    ordinary = ({}, {"top_k": 100}, {"highlight": snippets, "filter_terms": 50}, {"text": "x" * 999})
    dear = ({"top_k": 101}, {"highlight": everything}, {"filter_terms": 1_000}, {"text": "x" * 10_000})
    assert not any(plan(**each).is_expensive for each in ordinary)
    assert all(plan(**each).is_expensive for each in (*dear, {"rerank": Reranking(20)}, {"explain": True}))


def test_a_batch_pays_for_each_search(serve_open: ServeOpen) -> None:
    batch = {"searches": [{"query": f"bees {number}"} for number in range(5)]}
    with serve_open(rate_limit=0.01, rate_burst=6) as (client, _):
        assert client.post("/search/batch", json=batch).status_code == 200
        assert search(client).status_code == 200
        assert search(client).status_code == 429
