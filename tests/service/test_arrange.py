"""Least scores, other orders, boosts, groups; searches by a vector and by likeness; browsing."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.index import Index
from glow_service.search import run
from tests.made_index import made, write
from tests.service.asking import Serve

SOON = {"field": "day", "half_life": "soon"}
TODAY = datetime.now(UTC)
DOCUMENTS = [
    {
        "_id": f"d{number}",
        "title": f"Bees {number}",
        "text": f"Bees of hive {number} find the way home.",
        "shop": f"s{number % 3}",
        "price": [number, number + 0.5] if number % 2 else number,
        "day": (TODAY - timedelta(days=10 * number)).date().isoformat(),
        **({"rare": "yes"} if number == 7 else {}),
    }
    for number in range(12)
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: Any, toy_model: Path, serve: Serve) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("arranged")
    root = made(toy_model, write(folder / "corpus.jsonl", DOCUMENTS), folder / "index")
    with serve(root.path) as http:
        yield http


def ids(client: httpx.Client, **body: Any) -> list[str]:
    answer = client.post("/search", json={"query": "bees find home", "top_k": 12, "fields": [], **body})
    assert answer.status_code == 200, answer.text
    return [hit["id"] for hit in answer.json()["hits"]]


def refusal(client: httpx.Client, **body: Any) -> tuple[str, str]:
    problem = client.post("/search", json={"query": "bees", **body}).json()
    return problem["code"], problem["errors"][0]["pointer"]


def test_hits_below_the_least_score_are_left_out(client: httpx.Client) -> None:
    body = {"query": "bees find home", "top_k": 12, "retriever": "dense"}
    scores = [hit["score"] for hit in client.post("/search", json=body).json()["hits"]]
    least = sorted(scores)[4]
    kept = client.post("/search", json={**body, "min_score": least + 1e-5}).json()["hits"]
    assert [hit["score"] for hit in kept] == [score for score in scores if score > least + 1e-5]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ([{"field": "price"}], [*range(12)]),
        ([{"field": "price", "order": "desc"}], [*range(11, -1, -1)]),
        ([{"field": "day"}], [*range(11, -1, -1)]),
        ([{"field": "shop", "order": "desc"}, {"field": "price"}], [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9]),
    ],
)
def test_hits_are_sorted_by_columns(client: httpx.Client, sort: list[Any], order: list[int]) -> None:
    assert ids(client, sort=sort) == [f"d{number}" for number in order]


def test_documents_without_a_value_come_last_and_equal_ones_by_score(client: httpx.Client) -> None:
    by_score = ids(client)
    for order in ("asc", "desc"):
        found = ids(client, sort=[{"field": "rare", "order": order}])
        assert found == ["d7", *(name for name in by_score if name != "d7")]
    assert ids(client, sort=[{"field": "score", "order": "desc"}]) == by_score


def test_boosts_lift_what_matches_and_what_is_new(client: httpx.Client) -> None:
    assert ids(client, boosts=[{"filter": {"field": "rare", "eq": "yes"}, "factor": 50}])[0] == "d7"
    assert ids(client, boosts=[{"filter": {"field": "rare", "eq": "yes"}, "factor": 0.01}])[-1] == "d7"
    recent = {"field": "day", "half_life": "3d", "weight": 100}
    assert ids(client, boosts=[{"recency": recent}])[:3] == ["d0", "d1", "d2"]


def test_groups_keep_their_best(client: httpx.Client) -> None:
    by_score = ids(client)
    best: dict[int, str] = {}
    for name in by_score:
        best.setdefault(int(name[1:]) % 3, name)
    assert ids(client, group_by={"field": "shop"}) == [name for name in by_score if name in best.values()]
    assert len(ids(client, group_by={"field": "shop", "size": 2})) == 6
    assert len(ids(client, group_by={"field": "rare"})) == 12


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"sort": [{"field": "colour"}]}, "invalid_filter", "/sort/0/field"),
        ({"group_by": {"field": "colour"}}, "invalid_filter", "/group_by/field"),
        ({"boosts": [{}]}, "invalid_request", "/boosts/0"),
        ({"boosts": [{"recency": {"field": "shop"}}]}, "invalid_filter", "/boosts/0/recency/field"),
        ({"boosts": [{"recency": SOON}]}, "invalid_request", "/boosts/0/recency/half_life"),
        ({"boosts": [{"filter": {"field": "shop", "eq": 3}}]}, "invalid_filter", "/boosts/0/filter/eq"),
        ({"vector": [1.0]}, "invalid_request", "/vector"),
        ({"query": "", "like": {"id": "d1"}, "explain": True}, "invalid_request", "/explain"),
        ({"query": "", "like": {"id": "d1"}, "retriever": "hybrid"}, "invalid_request", "/retriever"),
    ],
)
def test_what_cannot_be_arranged_is_refused_with_its_place(
    client: httpx.Client, body: dict[str, Any], code: str, pointer: str
) -> None:
    assert refusal(client, **body) == (code, pointer)


def test_a_vector_searches_as_its_text_does(client: httpx.Client) -> None:
    asked = {"input": "bees find home", "input_type": "query"}
    vector = client.post("/v1/embeddings", json=asked).json()["data"][0]["embedding"]
    doubled = [2 * value for value in vector]  # its length does not matter
    assert ids(client, query=None, vector=doubled) == ids(client, retriever="dense")


def test_what_is_like_a_document_is_found_without_it(client: httpx.Client) -> None:
    found = ids(client, query=None, like={"id": "d3"}, filter={"field": "shop", "eq": "s0"})
    assert sorted(found) == ["d0", "d6", "d9"]
    answer = client.post("/search", json={"like": {"id": "nobody"}})
    assert (answer.status_code, answer.json()["code"]) == (404, "document_not_found")


def test_hits_have_their_stored_vectors_if_asked(client: httpx.Client) -> None:
    for hit in client.post("/search", json={"query": "bees", "top_k": 3, "vectors": True}).json()["hits"]:
        asked = {"vector": hit["vector"], "top_k": 12, "params": {"exact": True}}
        found = {each["id"]: each["score"] for each in client.post("/search", json=asked).json()["hits"]}
        assert found[hit["id"]] == max(found.values()) == pytest.approx(1.0, abs=1e-4)
    assert "vector" not in client.post("/search", json={"query": "bees"}).json()["hits"][0]


def test_a_filter_without_a_query_browses_with_exact_counts(client: httpx.Client) -> None:
    body = {"query": "", "filter": {"field": "price", "gte": 2}, "top_k": 3, "offset": 1}
    body |= {"sort": [{"field": "price", "order": "desc"}], "facets": [{"field": "shop"}]}
    answer = client.post("/search", json=body).json()
    assert [hit["id"] for hit in answer["hits"]] == ["d10", "d9", "d8"]
    assert answer["facets"]["shop"]["counted"] == 10 and answer["facets"]["shop"]["approximate"] is False
    assert answer["query"]["terms"] == []
    assert ids(client, query=None, filter={"field": "shop", "eq": "s1"}) == ["d1", "d10", "d4", "d7"]


def test_without_a_filter_an_empty_query_stays_an_error(http: httpx.Client, index: Index) -> None:
    assert http.post("/search", json={"query": " "}).json()["code"] == "invalid_query"
    assert http.post("/search", json={}).json()["errors"][0]["pointer"] == "/query"


@pytest.mark.parametrize("retriever", ["hybrid", "lexical"])
def test_another_order_of_very_many_matches_scores_the_page_alone(
    client: httpx.Client, retriever: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {
        "query": "bees find home", "retriever": retriever, "candidates": 2, "match": "any",
        "top_k": 5, "offset": 4, "sort": ["-price"],
    }  # fmt: skip
    hits = client.post("/search", json=body).json()["hits"]
    monkeypatch.setattr(run, "MOST_SCORED", 9)  # more than a page, fewer than the matches
    page = client.post("/search", json={**body, "typos": "off"}).json()
    assert page["total"] == 12 and [hit["rank"] for hit in hits] == [5, 6, 7, 8, 9]
    assert page["hits"] == hits and all(hit["score"] > 0 for hit in hits)
