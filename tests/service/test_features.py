"""Retrievers, filters, facets, fusion, highlights and explanations over HTTP."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from tests.made_index import made
from tests.service import asking
from tests.service.asking import Serve, ids

RETRIEVERS = ("dense", "lexical", "hybrid")
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=40)


def ask(http: httpx.Client, query: str = "how do bees find home", **more: Any) -> dict[str, Any]:
    return asking.ask(http, query, **more)


def test_a_lexical_search_finds_the_documents_that_share_words_and_no_others(
    http: httpx.Client, index: Index
) -> None:
    found = ask(http, "bees hive krill", retriever="lexical", top_k=50)
    texts = [" ".join(map(str, hit["fields"].values())).lower() for hit in found["hits"]]
    assert texts and all(any(word in text for word in ("bees", "hive", "krill")) for text in texts)
    assert index.holds(POSTINGS)
    scores, rows = index[POSTINGS].search(["bees", "hive", "krill"], 50, order=index.order)
    assert ids(found) == [document.id for document in index[STORED_FIELDS].rows(rows.tolist())]
    expected = [{"lexical": pytest.approx(score, abs=1e-6)} for score in scores]
    assert [hit["scores"] for hit in found["hits"]] == expected
    assert "encode" not in found["timings_ms"]


def test_a_hybrid_hit_has_both_scores_and_ranks_by_their_fusion(http: httpx.Client) -> None:
    found = ask(http, retriever="hybrid", fusion={"weights": {"dense": 1.0}})
    assert ids(found) == ids(ask(http))
    found = ask(http, retriever="hybrid", fusion={"method": "rrf", "k": 10})
    for hit in found["hits"]:
        assert set(hit["scores"]) == {"dense", "lexical"}
    dense, lexical = (ask(http, retriever=name, top_k=50) for name in ("dense", "lexical"))
    ranks = [{hit["id"]: hit["rank"] for hit in part["hits"]} for part in (dense, lexical)]
    best = found["hits"][0]
    wanted = sum(0.5 / (10 + part[best["id"]]) for part in ranks if best["id"] in part)
    assert best["score"] == pytest.approx(wanted, abs=1e-6)


def test_an_empty_set_of_documents_is_an_empty_answer(http: httpx.Client) -> None:
    asked = {"filter": {"field": "year", "gt": 9_999}, "facets": [{"field": "lang"}]}
    for retriever in RETRIEVERS:
        found = ask(http, retriever=retriever, **asked)
        assert found["hits"] == []
        assert found["facets"] == {"lang": {"values": [], "counted": 0, "approximate": False}}


def test_facets_count_every_match(http: httpx.Client, index: Index) -> None:
    found = ask(
        http, retriever="hybrid", facets=[{"field": "lang"}, {"field": "year", "limit": 3}], candidates=10
    )
    every = ask(http, retriever="hybrid", top_k=50, candidates=10)["hits"]
    languages = [hit["metadata"]["lang"] for hit in every]
    wanted = {value: languages.count(value) for value in set(languages)}
    assert {item["value"]: item["count"] for item in found["facets"]["lang"]["values"]} == wanted
    counted = found["facets"]["lang"]
    assert found["total"] == counted["counted"] == len(every) <= index[STORED_FIELDS].count
    assert not counted["approximate"] and len(found["facets"]["year"]["values"]) == 3


def test_highlights_mark_the_words_of_the_query_in_escaped_text(http: httpx.Client) -> None:
    best = ask(http, "bees", retriever="lexical", highlight=True)["hits"][0]
    assert "<em>bees</em>" in best["highlights"]["text"][0].lower()
    best = ask(http, "bees", highlight={"fields": ["title"], "fragments": 1, "fragment_chars": 40})["hits"][0]
    assert set(best["highlights"]) == {"title"}
    assert "highlights" not in ask(http, "bees", highlight=False)["hits"][0]


def test_explanations_hold_what_the_towers_read(http: httpx.Client, index: Index) -> None:
    found = ask(http, retriever="hybrid", explain={"leave_one_out": True}, top_k=3)
    weights = {term["word"]: term["weight"] for term in found["query"]["terms"]}
    explained = {term["word"]: term["weight"] for term in found["query"]["explanation"]["terms"]}
    assert explained == pytest.approx(weights, abs=2e-4)
    for hit in found["hits"]:
        tokens = index.preprocessor.document(index[STORED_FIELDS].get(hit["id"]))
        pairs = zip(tokens.word_ids, tokens.weights, strict=True)
        read = {tokens.words[word]: float(weight) for word, weight in pairs if word >= 0}
        terms = hit["explanation"]["terms"]
        assert {term["word"] for term in terms} == set(read)
        assert all(term["weight"] == pytest.approx(read[term["word"]], abs=1e-4) for term in terms)
        impacts = sum(item["impact"] for item in hit["explanation"]["lexical"])
        assert impacts == pytest.approx(hit["scores"]["lexical"], abs=1e-3)
    left = found["hits"][0]["explanation"]["leave_one_out"]
    assert [item["word"] for item in left] == list(weights)
    rest = index.preprocessor.query("how do find home")
    whole = index.preprocessor.query("how do bees find home")
    vectors = index.encoder.encode([whole, rest])
    vector = index.explainer.explain_document(index[STORED_FIELDS].get(found["hits"][0]["id"])).vector  # type: ignore[union-attr]
    assert left[2]["delta"] == pytest.approx(float((vectors[1] - vectors[0]) @ vector), abs=1e-5)


def test_an_index_without_the_parts_says_how_to_get_them(
    tmp_path: Path, toy_model: Path, toy_corpus: Path, serve: Serve
) -> None:
    bare = made(toy_model, toy_corpus, tmp_path / "bare", lexical=False, explain=False)
    with serve(bare.path) as client:
        for body, pointer, remedy in (
            ({"retriever": "lexical"}, "/retriever", "--lexical"),
            ({"retriever": "hybrid"}, "/retriever", "--lexical"),
            ({"explain": True}, "/explain", "--no-explain"),
        ):
            answer = client.post("/search", json={"query": "bees", **body})
            assert answer.status_code == 422 and answer.json()["code"] == "not_available"
            assert answer.json()["errors"][0]["pointer"] == pointer
            assert remedy in answer.json()["errors"][0]["detail"]
        assert client.get("/info").json()["index"]["components"] == ["columns"]


@QUIET
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
