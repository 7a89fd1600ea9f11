"""What an index may have, over HTTP: words, learned impacts, passages, a re-ranker, text fields of its own.

What each finds is in `tests/goldens` and `tests/search`.
"""

import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.artifact import IndexRoot
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import Reranker
from glow.search import Reranking, rank_hybrid, rerank
from tests.asked import asked_of
from tests.made_index import deleted, documents, upserted
from tests.service.asking import QUERY, BuildIndex, Serve, ask, assert_problem, ids, live_index, samples

RETRIEVERS = ("dense", "lexical", "hybrid")


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=20)
@given(
    retriever=st.sampled_from(RETRIEVERS),
    offset=st.integers(0, 60),
    top_k=st.integers(1, 60),
    low=st.integers(1990, 2060),
    query=st.sampled_from(["bees", "what about whales", "the", "owls owls sea home", "zzzz"]),
)
def test_any_page_is_a_part_of_the_whole_ranking(
    retriever: str, offset: int, top_k: int, low: int, query: str, http: httpx.Client
) -> None:
    asked = {"retriever": retriever, "filter": {"field": "year", "gte": low}, "candidates": 120}
    whole = ask(http, query, top_k=100, **asked)["hits"]
    page = ask(http, query, top_k=top_k, offset=offset, **asked)["hits"]
    pairs = [(hit["id"], hit["score"]) for hit in whole]
    assert [(hit["id"], hit["score"]) for hit in page] == pairs[offset : offset + top_k]
    scores = [hit["score"] for hit in whole]
    assert scores == sorted(scores, reverse=True)
    assert np.all([hit["metadata"]["year"] >= low for hit in whole])
    ties = [(-hit["score"], hit["id"]) for hit in whole if hit["score"] == scores[0]]
    assert ties == sorted(ties)


@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_an_empty_set_of_documents_is_an_empty_answer(http: httpx.Client, retriever: str) -> None:
    nothing = {"filter": {"field": "year", "gt": 9_999}, "facets": [{"field": "lang"}]}
    found = ask(http, retriever=retriever, **nothing)
    assert found["hits"] == []
    assert found["facets"] == {"lang": {"values": [], "counted": 0, "approximate": False}}


def test_an_index_without_the_parts_says_how_to_get_them(
    build_index: BuildIndex, serve: Serve, http: httpx.Client
) -> None:
    def refused(client: httpx.Client, body: dict[str, Any], remedy: str) -> None:
        response = client.post("/search", json={"query": "bees", **body})
        fault = assert_problem(response, 422, "not_available").errors[0]
        assert fault.pointer == f"/{next(iter(body))}" and remedy in fault.detail

    for more in ({"depth": 5}, {}):
        refused(http, {"rerank": more}, "glow build --rerank DIR")
    refused(http, {"retriever": "learned-sparse"}, "glow build --learned-sparse")
    with serve(build_index(documents(5), lexical=False, explain=False)) as client:
        refused(client, {"retriever": "lexical"}, "--lexical")
        refused(client, {"retriever": "hybrid"}, "--lexical")
        refused(client, {"explain": True}, "--no-explain")
        assert client.get("/info").json()["index"]["components"] == ["columns"]


# Learned impacts.


def test_learned_impacts_find_by_words_and_their_like_and_name_them(
    learned_index: Path, serve: Serve
) -> None:
    with serve(learned_index) as client:
        info = client.get("/info").json()
        assert info["retrievers"] == ["dense", "lexical", "learned-sparse", "hybrid"]
        assert "learned" in info["index"]["components"]
        totals = [ask(client, retriever=each)["total"] for each in ("learned-sparse", "lexical")]
        hits = ask(client, retriever="learned-sparse", top_k=20, explain=True, highlight=True)["hits"]
        hybrid = ask(client, retriever="hybrid", top_k=20)["hits"]
        assert ask(client, top_k=20)["hits"] == hybrid  # what searches where a request does not say
    assert totals[0] > totals[1]  # documents that hold none of the query's words
    assert set().union(*(hit["scores"] for hit in hybrid)) == {"dense", "learned"}
    expanded = [(hit, each) for hit in hits for each in hit["explanation"]["learned"] if "because" in each]
    assert expanded
    for hit, each in expanded:
        assert each["bm25"] == 0 and each["learned"] > 0
        said = {term["word"] for term in hit["explanation"]["terms"]}
        assert each["because"] in said and each["because"] != each["word"]
    for hit in hits:
        total = sum(each["bm25"] + each["learned"] for each in hit["explanation"]["learned"])
        assert total == pytest.approx(hit["score"], abs=1e-3)
    assert '<em class="attended">' in str([hit["highlights"] for hit, _ in expanded])


# Passages.

TOPICS = ("bees", "whales", "owls", "salmon", "ants", "lichen", "krill", "foxes")


def test_hits_are_documents_with_the_passage_that_matched_best(build_index: BuildIndex, serve: Serve) -> None:
    records = []
    for number in range(12):
        topics = [TOPICS[(number + place) % len(TOPICS)] for place in range(40)]
        texts = [
            f"Paragraph {place} tells how {topic} live near rivers." for place, topic in enumerate(topics)
        ]
        records.append({"_id": f"d{number}", "text": " ".join(texts), "number": number})
    with serve(build_index(records, passages=True)) as client:
        info = client.get("/info").json()["index"]
        assert info["documents"] == 12 and info["passages"] > 24 and "passages" in info["components"]
        search = partial(ask, client, "how owls live near rivers", top_k=12)
        found = search(retriever="dense")["hits"]
        assert len({hit["id"] for hit in found}) == len(found) == 12
        for hit in found:
            place = hit["passage"]
            assert hit["fields"]["text"][place["start"] : place["end"]] == place["text"]
            assert len(place["text"]) < len(hit["fields"]["text"])
        # A document that words found has the cosine of its best passage.
        (best,) = search(retriever="hybrid", top_k=1, candidates=1)["hits"]
        cosines = {hit["id"]: hit["score"] for hit in found}
        assert best["scores"]["dense"] == pytest.approx(cosines[best["id"]], abs=1e-5)
        few = search(filter={"number": {"lt": 7}}, explain=True, highlight=True, facets=["number"])
        assert few["facets"]["number"]["counted"] == 7 == len(few["hits"])
        for hit in few["hits"]:
            words = {term["word"] for term in hit["explanation"]["terms"] if term["field"] == "text"}
            read = hit["passage"]["text"] if "passage" in hit else hit["fields"]["text"]
            assert words and all(word in read.lower() for word in words)
            assert "<em>" in "".join(hit["highlights"]["text"])


# Text fields of its own, and ids, with a delta.

PUMP = {"_id": "PX-4711", "title": "A pump", "text": "It moves water.", "brand": "Kolmar", "year": 2001}


def test_a_part_number_finds_its_document_and_a_filter_names_documents(
    build_index: BuildIndex, serve: Serve, toy_model: Path
) -> None:
    note = {**PUMP, "_id": "PX-4712", "note": "a spare gasket of rubber"}
    root = IndexRoot(build_index([*documents(60), PUMP, note], text_field=("note",)))
    upserted(root, toy_model, [{**PUMP, "_id": "PX-4713"}, {**PUMP, "_id": "PX-4714"}, {**PUMP, "_id": "17"}])
    deleted(root, "PX-4712x", "PX-4711", "PX-4714")
    with serve(root.path) as client:

        def search(**members: Any) -> dict[str, Any]:
            return dict(client.post("/search", json={"top_k": 20, **members}).raise_for_status().json())

        for name in ("PX-4712", "PX-4713", "px 4713"):
            hit = search(query=name, retriever="lexical", explain=True)["hits"][0]
            assert hit["id"] == name.upper().replace(" ", "-")
            assert [word["word"] for word in hit["explanation"]["lexical"]] == ["px", name[-4:]]
        marked = search(query="gasket", retriever="lexical", highlight={"fields": ["note"]})
        assert ids(search(query='note:gasket "spare gasket"', retriever="lexical")) == ["PX-4712"]
        assert marked["hits"][0]["highlights"] == {"note": ["a spare <em>gasket</em> of rubber"]}
        others = ids(search(query="water tea -kolmar"))
        assert others and not {*others} & {"17", "PX-4712", "PX-4713"}
        chosen = {"_id": ["PX-4711", "PX-4712", "PX-4713", "d/7", 17, "nobody"]}
        for more in ({}, {"query": "water", "match": "any"}):
            assert sorted(ids(search(**more, filter=chosen))) == ["17", "PX-4712", "PX-4713", "d/7"]
        rest = search(query="pump", filter={"and": [{"not": chosen}, {"field": "year", "lte": 2001}]})
        assert rest["hits"] and not {*ids(rest)} & {"17", "PX-4711", "PX-4712", "PX-4713", "PX-4714"}


# Re-ranking: what it answers, what it costs, and what becomes of it when time runs out.


@pytest.fixture(scope="module")
def reranked(rerank_index: Path, serve: Serve) -> Iterator[httpx.Client]:
    with serve(rerank_index) as client:
        yield client


def test_an_answer_is_the_reranked_ranking_page_by_page(reranked: httpx.Client, rerank_index: Path) -> None:
    index = live_index(rerank_index)
    vector = index.encoder.run([index.preprocessor.query(QUERY)])[0]
    first = rank_hybrid(index, asked_of(index, QUERY), 100)
    ranked, _ = rerank(index, QUERY, first, Reranking(20), vector=vector)
    wanted = [document.id for document in index[STORED_FIELDS].rows(ranked.rows.tolist())]
    pages = [ask(reranked, rerank={"depth": 20}, top_k=7, offset=offset) for offset in range(0, 49, 7)]
    assert list(itertools.chain(*map(ids, pages))) == wanted[:49]
    marks = [hit["scores"].get("rerank") for page in pages for hit in page["hits"]]
    assert marks[:20] == pytest.approx(ranked.parts["rerank"][:20].tolist(), abs=1e-3)
    assert marks[20:] == [None] * 29
    assert pages[0]["timings_ms"]["rerank"] > 0 and pages[0]["degraded"] == []
    assert ids(ask(reranked)) != wanted[:10]
    assert ids(ask(reranked, rerank=True)) == ids(ask(reranked, rerank={"depth": 50}))
    assert all("rerank" not in hit["scores"] for hit in ask(reranked, rerank=False)["hits"])
    searches = [{"query": QUERY, "rerank": {"depth": 20}, "top_k": 7, "match": "any"}]
    batch = reranked.post("/search/batch", json={"searches": searches}).json()
    assert ids(batch["results"][0]) == wanted[:7]


def test_reasons_are_of_what_was_read_again(reranked: httpx.Client) -> None:
    assert reranked.get("/info").json()["index"]["rerank"] == {"bits": 4, "size": 16, "share": 0.5}
    wordy = "the sun and the moon, water and salt, from a river of ice"  # words of many documents
    hits = ask(reranked, wordy, retriever="lexical", rerank={"depth": 3}, explain=True, top_k=5)["hits"]
    assert ["rerank" in hit["explanation"] for hit in hits] == [True] * 3 + [False] * 2
    assert {"query", "text"} <= {word["field"] for word in hits[0]["explanation"]["rerank"]}
    by_year = ask(reranked, rerank=True, sort=[{"field": "year"}], group_by={"field": "year"})
    years = [hit["metadata"]["year"] for hit in by_year["hits"]]
    assert years == sorted(set(years))
    refused = reranked.post("/search", json={"rerank": True, "like": {"id": "toy/0"}})
    assert assert_problem(refused, 422, "invalid_request").errors[0].pointer == "/rerank"


def test_at_the_deadline_what_was_read_comes_first_and_no_cache_keeps_it(
    rerank_index: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = Reranker.score

    def score_slowly(*arguments: Any) -> NDArray[np.float32]:
        time.sleep(1.0)
        return score(*arguments)

    with serve(rerank_index, cache_entries=100) as client:
        first_page = ask(client, rerank={"depth": 10}, top_k=50)
        whole = ask(client, rerank=True, top_k=50)
        with monkeypatch.context() as patch:
            # The first batch ends in time also where the machine is busy; there is no time for another.
            patch.setattr(Reranker, "score", score_slowly)
            late = ask(client, rerank={"depth": 49}, top_k=50, timeout_ms=1_900)
        assert late["degraded"] == ["rerank_partial"] and ids(late) == ids(first_page)
        assert ["rerank" in hit["scores"] for hit in late["hits"]] == [True] * 10 + [False] * 40
        again = ask(client, rerank={"depth": 49}, top_k=50, timeout_ms=20_000)
        assert again["degraded"] == [] and ids(again) != ids(late)
        assert ids(ask(client, rerank=True, top_k=50)) == ids(whole)
        counted = samples(client)
        assert counted['glow_left_out_total{stage="rerank_partial"}'] == 1
        assert counted['glow_stage_seconds_count{stage="rerank"}'] >= 3
