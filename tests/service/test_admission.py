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
from glow_service.access import RateLimiter
from glow_service.errors import DeadlineError
from glow_service.search.clock import Deadline
from glow_service.search.plan import HighlightCall, SearchPlan
from glow_service.search.run import SearchSession
from glow_service.state import Service
from tests.service.asking import REST, ServeOpen, half_search
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
        assert refused.status_code == 429 and refused.json()["code"] == "overloaded"
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


def late_requests(service: Service) -> float | None:
    return service.metrics.registry.get_sample_value("glow_rejected_total", {"reason": "deadline"})


@pytest.mark.parametrize("given", [{"timeout_ms": 150}, {}])
def test_a_deadline_that_passes_in_the_queue_is_a_504_or_a_partial_answer(
    serve_open: ServeOpen, given: dict[str, Any]
) -> None:
    with serve_open(default_timeout_ms=150) as (client, service), busy(service):
        started = time.perf_counter()
        late = search(client, **given)
        assert 0.1 < time.perf_counter() - started < 5
        assert (late.status_code, late.json()["code"]) == (504, "deadline")
        assert "150 ms" in late.json()["detail"]
        partial = search(client, allow_partial=True, **given)
        assert partial.status_code == 200 and partial.json()["degraded"] == ["timeout"]
        assert partial.json()["hits"] == []  # it was not ranked yet
        assert late_requests(service) == 2
        searches = [{"query": f"bees {number}", "allow_partial": number == 2, **given} for number in range(3)]
        batch = client.post("/search/batch", json={"searches": searches}).json()
        assert [result["status"] for result in batch["results"]] == [504, 504, 200]
        assert late_requests(service) == 3, "a request counts once, however many of its searches were late"


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
        asked = {"top_k": 3, "explain": True, "highlight": True, "timeout_ms": 1_000}
        partial = search(client, allow_partial=True, **asked)
        assert partial.status_code == 200, partial.text
        found = partial.json()
        assert found["degraded"] == ["timeout"]
        kept = ("rank", "id", "score", "scores", "fields", "metadata")
        assert [{name: hit[name] for name in kept} for hit in whole["hits"]] == found["hits"]
        assert found["query"]["terms"] == whole["query"]["terms"]
        assert search(client, **asked).status_code == 504
        gate.set()
        monkeypatch.undo()
        again = search(client, allow_partial=True, **{**asked, "timeout_ms": 30_000}).json()
        assert again["degraded"] == [] and again["hits"][0]["explanation"]


def test_an_expired_request_is_never_encoded(serve_open: ServeOpen) -> None:
    with serve_open(cache_entries=0) as (client, service):
        name = "glow_batch_queries_count"
        with busy(service):
            assert search(client, timeout_ms=50).status_code == 504
            before = service.metrics.registry.get_sample_value(name)
        assert search(client).status_code == 200
        assert service.metrics.registry.get_sample_value(name) == (before or 0) + 1


def test_a_body_that_comes_too_slowly_is_a_504(serve_open: ServeOpen) -> None:
    with serve_open(default_timeout_ms=200) as (client, service):
        slow = half_search(client)
        assert b"504 Gateway Timeout" in slow.recv(65_536)
        until(lambda: service.pool.admission.taken == 0)


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

TEXT = "how do bees find home"
CALL = SearchPlan(TEXT, 10, 0, 100, SearchParams(), explain=True, leave_one_out=True)

OVER = Deadline(0.0)


def test_a_search_whose_time_is_over_fetches_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = "glow_service.search.run.documents_of"
    monkeypatch.setattr(fetch, lambda *_: pytest.fail("documents were fetched"))
    session = SearchSession(index, CALL)
    vector = index.encoder.run([session.preprocess()])[0]
    monkeypatch.setattr(session.clock, "_deadline", OVER)
    with pytest.raises(DeadlineError):
        session.retrieve(vector)


def test_the_deadline_is_looked_at_before_every_batch_of_explanations(index: Index, monkeypatch: Any) -> None:
    explainer = index.explainer
    assert explainer is not None
    work = explainer.explain_documents

    def explain(documents: object, check: Callable[[], None]) -> object:
        monkeypatch.setattr(session.clock, "_deadline", OVER)  # the time is over while hits are explained
        return work(documents, check)  # type: ignore[arg-type]

    session = SearchSession(index, CALL)
    monkeypatch.setattr(explainer, "explain_documents", explain)
    monkeypatch.setattr(explainer, "_tower", lambda _: pytest.fail("a batch was encoded"), raising=True)
    monkeypatch.setattr(explainer, "explain_query", lambda _: None)
    with pytest.raises(DeadlineError):
        session.run()


# What is expensive, and who pays.


def plan(**more: Any) -> SearchPlan:
    return SearchPlan(
        **{"text": "bees", "top_k": 10, "offset": 0, "candidates": 100, "params": SearchParams(), **more}
    )


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


def test_a_price_beyond_the_burst_is_paid_on_credit_and_who_owes_cannot_spend_more() -> None:
    now = [0.0]
    limiter = RateLimiter(rate=2.0, burst=10, max_clients=10, clock=lambda: now[0])
    assert limiter.take("a") == limiter.take("a") == 0  # two requests whose bodies are on their way
    assert limiter.charge("a", 29) == 0 and limiter.charge("a", 5) == 11  # and its first token comes back
    assert limiter.take("a") == 11  # 20 owed, and 1 to begin with, at 2 a second
    assert limiter.take("b") == 0
    now[0] += 10.0
    assert limiter.take("a") == 1
    now[0] += 0.5
    assert limiter.take("a") == 0
