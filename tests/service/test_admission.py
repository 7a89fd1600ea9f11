"""Admission, deadlines, costs, and clients that leave."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import glow_service.protocol
import glow_service.search.session
from glow.index import Index
from glow.index.vectors import SearchParams
from glow.search import Reranking
from glow.text import Highlighting
from glow_service.access.control import RateLimiter
from glow_service.api.answers import enter_work_pool
from glow_service.api.context import new_context
from glow_service.errors import DeadlineError, OverloadedError
from glow_service.search import HighlightCall, calls, request_cost
from glow_service.search.calls import ExplainCall, SearchCall
from glow_service.search.clock import Deadline
from glow_service.search.session import SearchSession
from glow_service.search.work_pool import Admission
from glow_service.state import Service
from tests.service.asking import ServeOpen
from tests.until import until

BODY = b'{"query": "how do bees find the way home"}'
HEAD = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


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


def test_one_request_too_many_is_refused_at_once_and_operations_answer(serve_open: ServeOpen) -> None:
    with serve_open(max_in_flight=2, default_timeout_ms=20_000) as (client, service):
        holders = [open_socket(client) for _ in range(2)]
        for holder in holders:  # a permit is taken before the body is there
            holder.sendall(HEAD % len(BODY) + BODY[:5])
        until(lambda: service.plain.admission.taken == 2)
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
            holder.sendall(BODY[5:])
            assert b"200 OK" in holder.recv(65_536)
            holder.close()
        assert search(client).status_code == 200


def test_every_permit_comes_back_however_a_request_ends(serve_open: ServeOpen) -> None:
    with serve_open(max_in_flight=4) as (client, service):
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


def test_a_batch_holds_permits_of_the_bulk_lane_for_its_price(serve_open: ServeOpen) -> None:
    with serve_open(max_in_flight=2, default_timeout_ms=20_000) as (client, service):
        searches = [{"query": "bees"}, {"query": "salmon"}, {"query": "camels"}]
        assert client.post("/search/batch", json={"searches": searches[:2]}).status_code == 200
        # What could never be admitted is no matter of trying again.
        assert client.post("/search/batch", json={"searches": searches}).status_code == 422
        texts = {"input": ["a", "b", "c"], "input_type": "query"}
        assert client.post("/v1/embeddings", json=texts).status_code == 422
        service.bulk.admission.enter(1)
        assert client.post("/search/batch", json={"searches": searches[:2]}).status_code == 429
        assert client.post("/v1/embeddings", json={**texts, "input": ["a", "b"]}).status_code == 429
        assert client.post("/v1/embeddings", json={**texts, "input": ["a"]}).status_code == 200
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


@pytest.mark.parametrize("cached", [True, False])
def test_after_the_deadline_a_partial_answer_has_what_was_ranked(
    serve_open: ServeOpen, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """Reasons that take too long stand for any stage after the ranking."""

    def slow(*arguments: Any, **options: Any) -> None:
        time.sleep(2.5)
        raise AssertionError("nobody waits for this")

    monkeypatch.setattr("glow_service.search.session.explain", slow)
    with serve_open(cache_entries=100 if cached else 0) as (client, _):
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


def test_a_deadline_beyond_the_bound_is_refused(serve_open: ServeOpen) -> None:
    with serve_open(max_timeout_ms=5_000, default_timeout_ms=5_000) as (client, _):
        refused = search(client, timeout_ms=5_001)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/timeout_ms"
        assert search(client, timeout_ms=5_000).status_code == 200


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
        slow = open_socket(client)
        slow.sendall(HEAD % len(BODY) + BODY[:5])
        assert b"504 Gateway Timeout" in slow.recv(65_536)
        until(lambda: service.plain.admission.taken == 0)


def test_headers_that_come_too_slowly_are_a_408(
    serve_open: ServeOpen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glow_service.protocol, "MAX_HEAD_S", 0.2)
    with serve_open() as (client, _):
        slow = open_socket(client)
        slow.sendall(b"POST /search HTTP/1.1\r\nHost:")
        answer = slow.recv(65_536)
        assert b"408 Request Timeout" in answer and b"header_timeout" in answer
        assert slow.recv(1) == b""


def test_a_client_that_leaves_frees_its_place_and_is_never_searched_for(serve_open: ServeOpen) -> None:
    with serve_open(cache_entries=0, default_timeout_ms=20_000) as (client, service), busy(service):
        leaving = open_socket(client)
        leaving.sendall(HEAD % len(BODY) + BODY)
        until(lambda: service.plain.batcher.waiting == 1 or service.plain.batcher.running == 1)
        assert service.plain.admission.taken == 1
        leaving.close()
        until(lambda: service.plain.admission.taken == 0)
        assert client.get("/healthz").status_code == 200


# A search ends soon after its deadline, because a thread cannot be stopped from outside.

TEXT = "how do bees find home"
CALL = SearchCall(TEXT, 10, 0, 100, SearchParams(), explain=ExplainCall(leave_one_out=True))

OVER = Deadline(0.0)


def test_a_search_whose_time_is_over_fetches_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = "glow_service.search.session.documents_of"
    monkeypatch.setattr(fetch, lambda *_: pytest.fail("documents were fetched"))
    session = SearchSession(index, CALL)
    encoded = index.encoder.read_batch([session.preprocess()])[0]
    monkeypatch.setattr(session.clock, "_deadline", OVER)
    with pytest.raises(DeadlineError):
        session.retrieve(encoded)


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


# What requests cost, and who pays.

ROOT = Path(__file__).parent.parent.parent


def call(
    top_k: int = 10, highlight: HighlightCall | None = None, explain: ExplainCall | None = None
) -> SearchCall:
    return SearchCall("bees", top_k, 0, 100, SearchParams(), highlight=highlight, explain=explain)


def test_an_ordinary_search_costs_one() -> None:
    snippets = HighlightCall(("url", "title", "anchor", "clicked_queries", "text"), Highlighting(2, 200))
    assert request_cost(call()) == request_cost(call(100)) == 1
    assert request_cost(call(10, snippets), filter_terms=50) == 1


def test_what_takes_long_costs_more() -> None:
    everything = HighlightCall(("title", "text"), Highlighting(10, 2_000))
    assert request_cost(call(100, everything)) == 1 + 100 * 2 * 10 * 2_000 // calls.HIGHLIGHTED_CHARS
    assert request_cost(call(), filter_terms=1_000) == 6
    costs = [request_cost(replace(call(), text="x" * length)) for length in (999, 2_000, 10_000)]
    assert costs == [1, 3, 11] and costs[1] <= calls.MOST_PLAIN < costs[2]
    both = replace(call(), retriever="hybrid", candidates=1_000)
    assert request_cost(both) == 1 + 1_000 // calls.COMPARED_CANDIDATES
    assert request_cost(replace(both, late=False)) == request_cost(replace(both, candidates=100)) == 1
    depths = {1: 2, 10: 2, 50: 4, 51: 4}
    assert {depth: request_cost(replace(call(), rerank=Reranking(depth))) for depth in depths} == depths
    assert request_cost(call(20, explain=ExplainCall(leave_one_out=False))) == 1 + 20 * calls.EXPLAINED_HIT
    left_out = request_cost(call(20, explain=ExplainCall(leave_one_out=True)))
    assert left_out == 1 + 20 * calls.EXPLAINED_HIT + calls.LEAVE_ONE_OUT


def test_a_long_text_is_no_work_for_the_plain_lane() -> None:
    short, long = (calls.texts_cost(1, "document", size) for size in (9_999, 10_000))
    assert short <= calls.MOST_PLAIN < long and calls.texts_cost(3, "query", 0) == 3


def test_long_hits_are_priced_by_what_is_fetched_and_read() -> None:
    assert calls.reading_cost(100 * 10_000, 0) == 0
    assert calls.reading_cost(9_000_000, 1_000_000) == 4 + 10


def test_the_page_has_the_table_of_prices() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    text = page.split("## Limit request rates")[1].split("\n## ")[0]
    table = dict(re.findall(r"^\|(.+?)\|(\d+)\|$", text, re.MULTILINE))
    assert {name: int(cost) for name, cost in table.items()} == {
        "a search": 1,
        f"each {calls.QUERY_CHARS:,} characters of its query": 1,
        f"each {calls.FILTER_TERMS} terms of its filters": 1,
        f"each {calls.HIGHLIGHTED_CHARS:,} characters of requested highlights": 1,
        f"each {calls.FETCHED_CHARS:,} characters of its hits' documents": 1,
        f"each {calls.READ_CHARS:,} characters of hits read for highlights": 1,
        "each explained hit": calls.EXPLAINED_HIT,
        "`leave_one_out`": calls.LEAVE_ONE_OUT,
        f"each {calls.COMPARED_CANDIDATES} candidates compared by token": 1,
        f"each {calls.RERANKED_HITS} re-ranked hits": 1,
        "a text embedded as a query": calls.TEXTS["query"],
        "a text embedded as a document": calls.TEXTS["document"],
        f"each {calls.TEXT_CHARS:,} characters of these texts": 1,
    }
    assert f"costs more than {calls.MOST_PLAIN}" in text


def test_who_is_refused_for_want_of_permits_pays_nothing() -> None:
    charged: list[int] = []
    bulk, plain = SimpleNamespace(admission=Admission(4)), SimpleNamespace(admission=Admission(4))
    access = SimpleNamespace(charge=lambda scope, key, price: charged.append(price))
    service = SimpleNamespace(work_pools={"plain": plain, "bulk": bulk}, access=access)
    context = new_context({"headers": []})
    bulk.admission.enter(2)
    with pytest.raises(OverloadedError):
        enter_work_pool(service, context, {}, 64, "bulk")
    assert charged == [] and bulk.admission.taken == 2
    assert enter_work_pool(service, context, {}, 2, "bulk") is bulk
    assert charged == [2] and bulk.admission.taken == 4
    context.release()
    assert bulk.admission.taken == 2
    assert enter_work_pool(service, context, {}, 1, "plain") is plain and charged == [2, 1]


def test_a_price_beyond_the_burst_is_paid_on_credit() -> None:
    now = [0.0]
    limiter = RateLimiter(rate=2.0, burst=10, max_clients=10, clock=lambda: now[0])
    assert limiter.take("a") == 0 and limiter.charge("a", 29) == 0
    assert limiter.take("a") == 11  # 20 owed, and 1 to begin with, at 2 a second
    assert limiter.take("b") == 0
    now[0] += 10.0
    assert limiter.take("a") == 1
    now[0] += 0.5
    assert limiter.take("a") == 0


def test_who_owes_cannot_spend_more_and_gets_the_first_token_back() -> None:
    now = [0.0]
    limiter = RateLimiter(rate=1.0, burst=3, max_clients=10, clock=lambda: now[0])
    assert [limiter.take("a") for _ in range(3)] == [0, 0, 0]  # three requests whose bodies are on their way
    assert limiter.charge("a", 5) == 0 and limiter.charge("a", 5) == 5
    now[0] += 4.0
    assert limiter.take("a") == 1 or pytest.fail("the token of the refused request was not given back")
