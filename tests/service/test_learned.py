"""`"retriever": "learned-sparse"` over HTTP: what it finds, why, and what an index without learned impacts answers."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.search import rank_hybrid, rank_lexical
from tests.asked import asked_of
from tests.service.asking import QUERY, Serve, ask, live_index


@pytest.fixture(scope="module")
def client(learned_index: Path, serve: Serve) -> Iterator[httpx.Client]:
    """Of the toy index with learned impacts."""
    with serve(learned_index) as client:
        yield client


@pytest.fixture(scope="module")
def index(learned_index: Path) -> Index:
    return live_index(learned_index)


def test_hits_are_those_of_the_library(client: httpx.Client, index: Index) -> None:
    ranked = rank_lexical(index, QUERY, 50, by="learned")
    hits = ask(client, retriever="learned-sparse", top_k=50)["hits"]
    documents = index[STORED_FIELDS].rows(ranked.rows.tolist())
    assert [hit["id"] for hit in hits] == [each.id for each in documents]
    assert [hit["scores"]["learned"] for hit in hits] == pytest.approx(ranked.scores.tolist(), abs=1e-5)
    words = ask(client, retriever="lexical", top_k=50)["hits"]
    assert len(hits) > len(words)  # documents that hold none of the query's words


def test_hybrid_counts_words_and_their_like(client: httpx.Client, index: Index) -> None:
    ranked = rank_hybrid(index, asked_of(index, QUERY), 100)
    assert set(ranked.parts) == {"dense", "learned"}
    hits = ask(client, retriever="hybrid", top_k=20)["hits"]
    documents = index[STORED_FIELDS].rows(ranked.rows[:20].tolist())
    assert [hit["id"] for hit in hits] == [each.id for each in documents]
    assert all({"dense", "learned"} >= set(hit["scores"]) for hit in hits)
    assert ask(client, top_k=20)["hits"] == hits  # what searches where a request does not say


def test_reasons_name_the_word_that_a_hit_says_instead(client: httpx.Client) -> None:
    hits = ask(client, retriever="learned-sparse", top_k=20, explain=True, highlight=True)["hits"]
    expanded = [(hit, each) for hit in hits for each in hit["explanation"]["learned"] if "because" in each]
    assert expanded
    for hit, each in expanded:
        assert each["bm25"] == 0 and each["learned"] > 0
        said = {term["word"] for term in hit["explanation"]["terms"]}
        assert each["because"] in said and each["because"] != each["word"]
    for hit in hits:
        total = sum(each["bm25"] + each["learned"] for each in hit["explanation"]["learned"])
        assert total == pytest.approx(hit["score"], abs=1e-3)
    marked = " ".join(text for hit, _ in expanded for texts in hit["highlights"].values() for text in texts)
    assert '<em class="attended">' in marked


def test_the_server_says_what_it_can_do(client: httpx.Client, http: httpx.Client) -> None:
    told = client.get("/info").json()
    assert told["retrievers"] == ["dense", "lexical", "learned-sparse", "hybrid"]
    assert "learned" in told["index"]["components"]
    assert "learned" not in http.get("/info").json()["index"]["components"]


def test_an_index_without_says_how_to_build_one(http: httpx.Client) -> None:
    response = http.post("/search", json={"query": QUERY, "retriever": "learned-sparse"})
    assert response.status_code == 422
    assert response.json()["code"] == "not_available" and "glow build --learned-sparse" in response.text
