"""`rerank` over HTTP: what it answers, what it costs, and what becomes of it when time runs out."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import Reranker
from glow.search import Reranking, rank_hybrid, rerank
from tests.asked import asked_of
from tests.service.asking import QUERY, ServeOpen, ask, ids, live_index
from tests.until import until

WORDY = "the sun and the moon, water and salt, from a river of ice"
"""Words of many documents."""


@pytest.fixture(scope="module")
def serve(rerank_index: Path, serve_open: ServeOpen) -> ServeOpen:
    """Serves the toy index that has a re-ranker, in a thread of this process."""
    return partial(serve_open, rerank_index)


@pytest.fixture(scope="module")
def client(serve: ServeOpen) -> Iterator[httpx.Client]:
    with serve() as (client, _):
        yield client


@pytest.fixture(scope="module")
def index(rerank_index: Path) -> Index:
    return live_index(rerank_index)


def test_an_answer_is_the_reranked_ranking_page_by_page(client: httpx.Client, index: Index) -> None:
    vector = index.encoder.run([index.preprocessor.query(QUERY)])[0]
    first = rank_hybrid(index, asked_of(index, QUERY), 100)
    ranked, _ = rerank(index, QUERY, first, Reranking(20), vector=vector)
    wanted = [document.id for document in index[STORED_FIELDS].rows(ranked.rows.tolist())]
    pages = [ask(client, rerank={"depth": 20}, top_k=7, offset=offset) for offset in range(0, 49, 7)]
    assert list(itertools.chain(*map(ids, pages))) == wanted[:49]
    scores = [hit["score"] for page in pages for hit in page["hits"]]
    assert scores == sorted(scores, reverse=True)
    marks = [hit["scores"].get("rerank") for page in pages for hit in page["hits"]]
    assert marks[:20] == pytest.approx(ranked.parts["rerank"][:20].tolist(), abs=1e-3)
    assert marks[20:] == [None] * 29
    assert pages[0]["timings_ms"]["rerank"] > 0 and pages[0]["degraded"] == []
    assert ids(ask(client)) != wanted[:10]
    assert ids(ask(client, rerank=True)) == ids(ask(client, rerank={"depth": 50}))
    assert all("rerank" not in hit["scores"] for hit in ask(client, rerank=False)["hits"])


@pytest.mark.parametrize("retriever", ["dense", "lexical", "hybrid"])
def test_every_retriever_can_be_read_again(client: httpx.Client, retriever: str) -> None:
    options: dict[str, Any] = {"query": WORDY, "retriever": retriever, "top_k": 20}
    plain = ask(client, **options)
    again = ask(client, **options, rerank={"depth": 20})
    assert sorted(ids(plain)) == sorted(ids(again)) and ids(plain) != ids(again)
    assert all("rerank" in hit["scores"] for hit in again["hits"])


def test_batches_filters_facets_boosts_and_groups_go_with_it(client: httpx.Client) -> None:
    wanted = {"query": QUERY, "rerank": {"depth": 30}, "top_k": 10, "match": "any"}
    year = {"field": "year", "gte": 2010}
    found = client.post(
        "/search/batch", json={"searches": [wanted, {"query": QUERY, "match": "any"}]}
    ).json()["results"]
    assert ids(found[0]) == ids(ask(client, **wanted)) and ids(found[1]) == ids(ask(client))
    filtered = ask(client, rerank=True, filter=year, facets=[{"field": "year"}])
    assert all(hit["metadata"]["year"] >= 2010 for hit in filtered["hits"]) and filtered["facets"]
    by_year = ask(client, rerank=True, sort=[{"field": "year"}], group_by={"field": "year"})
    years = [hit["metadata"]["year"] for hit in by_year["hits"]]
    assert years == sorted(set(years))


def test_reasons_say_where_the_joined_layers_looked(client: httpx.Client) -> None:
    assert client.get("/info").json()["index"]["rerank"] == {"bits": 4, "size": 16, "share": 0.5}
    hits = ask(client, rerank={"depth": 3}, explain=True, top_k=5)["hits"]
    for hit in hits[:3]:
        words = hit["explanation"]["rerank"]
        assert {word["word"] for word in words if word["field"] == "query"} == set(QUERY.split())
        assert {word["field"] for word in words} > {"query", "text"}
    assert all("rerank" not in hit["explanation"] for hit in hits[3:])


def test_an_index_without_says_how_to_build_one(http: httpx.Client) -> None:
    for asked in ({"depth": 5}, {}):
        response = http.post("/search", json={"query": QUERY, "rerank": asked})
        assert response.status_code == 422, asked
        assert response.json()["code"] == "not_available"
        assert "glow build --rerank DIR" in response.json()["detail"]
    assert "rerank" not in http.get("/info").json()["index"]["components"]


@pytest.mark.parametrize(
    ("more", "code", "pointer"),
    [
        ({"rerank": {"depth": 201}}, "invalid_request", "/rerank/depth"),
        ({"rerank": {"method": "join"}}, "invalid_request", "/rerank/method"),
        ({"rerank": True, "query": None, "like": {"id": "toy/0"}}, "invalid_request", "/rerank"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    client: httpx.Client, more: dict[str, Any], code: str, pointer: str
) -> None:
    body = {name: value for name, value in {"query": QUERY, **more}.items() if value is not None}
    response = client.post("/search", json=body)
    assert response.status_code == 422, response.text
    assert (response.json()["code"], response.json()["errors"][0]["pointer"]) == (code, pointer)


class Slow:
    """Has each batch of the re-ranker wait first; the toy one takes no time."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self.wait, self.batches = wait, 0
        self._score = Reranker.score

    def __get__(self, reranker: Reranker, _: object = None) -> Callable[..., NDArray[np.float32]]:
        def score(*arguments: Any) -> NDArray[np.float32]:
            self.batches += 1
            self.wait()
            return self._score(reranker, *arguments)

        return score


def test_at_the_deadline_what_was_read_comes_first_and_no_cache_keeps_it(
    serve: ServeOpen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(cache_entries=100) as (client, _):
        plain, first_page = ask(client, top_k=50), ask(client, rerank={"depth": 10}, top_k=50)
        whole = ask(client, rerank=True, top_k=50)
        with monkeypatch.context() as patch:
            # The first batch ends in time also where the machine is busy; there is no time for another.
            patch.setattr(Reranker, "score", Slow(lambda: time.sleep(2.0)))
            late = ask(client, rerank={"depth": 49}, top_k=50, timeout_ms=3_500)
        assert late["degraded"] == ["rerank_partial"] and ids(late) == ids(first_page)
        assert ["rerank" in hit["scores"] for hit in late["hits"]] == [True] * 10 + [False] * 40
        again = ask(client, rerank={"depth": 49}, top_k=50, timeout_ms=20_000)
        assert again["degraded"] == [] and ids(again) != ids(late)
        assert ids(ask(client, rerank=True, top_k=50)) == ids(whole)
        metrics = client.get("/metrics").text
        assert 'glow_left_out_total{stage="rerank_partial"} 1.0' in metrics
        assert 'glow_stage_seconds_count{stage="rerank"}' in metrics
        assert ids(plain) != ids(whole)


def test_it_is_expensive_and_holds_up_no_plain_search(serve: ServeOpen, monkeypatch: Any) -> None:
    with serve(search_threads=1, max_in_flight=4, default_timeout_ms=20_000) as (client, service):
        gate = threading.Event()
        slow = Slow(lambda: gate.wait(60))
        monkeypatch.setattr(Reranker, "score", slow)
        answers: list[httpx.Response] = []

        def read_again() -> None:
            answers.append(client.post("/search", json={"query": QUERY, "rerank": {"depth": 50}}))

        thread = threading.Thread(target=read_again)
        thread.start()
        until(lambda: slow.batches)
        assert service.pool.expensive.taken == 1
        assert ask(client)["hits"]  # its one thread is another's
        assert client.post("/search", json={"query": QUERY, "rerank": {"depth": 50}}).status_code == 429
        gate.set()
        thread.join()
        assert answers[0].status_code == 200
        until(lambda: service.pool.expensive.taken == 0)
