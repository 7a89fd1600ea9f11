"""`POST /explain`: why a search returns a document, or does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.contract import ExplainResult
from tests.records import read_whole
from tests.service.asking import BuildIndex, Serve, assert_problem, ids, tenants

DOCUMENTS = [
    {"_id": "lamp", "title": "Desk lamp", "text": "A lamp of brass for a desk.", "owner": "ann", "price": 5},
    {"_id": "lamps", "title": "Floor lamps", "text": "Two lamps for the floor beside a sofa.", "owner": "ann", "price": 9},
    {"_id": "desk", "title": "Oak desk", "text": "A desk of oak beside a lamp.", "owner": "ann", "price": 70},
    {"_id": "bed", "title": "Divan", "text": "A sofa bed for two, of linen.", "owner": "bob", "price": 80},
    {"_id": "bees", "title": "Honey", "text": "Bees make honey in summer.", "owner": "bob", "price": 3},
    {"_id": "tea", "title": "Tea", "text": "Green tea from the hills. " + "Leaves are dried. " * 200, "owner": "bob"},
]  # fmt: skip
QUERY = "desk lamp"


@pytest.fixture(scope="module")
def root(build_index: BuildIndex) -> Path:
    return build_index(DOCUMENTS)


@pytest.fixture(scope="module")
def client(root: Path, serve: Serve) -> Iterator[httpx.Client]:
    synonyms = root.with_name("synonyms.txt")
    synonyms.write_text("couch => sofa\nlinen => sofa\n")
    with serve(root, synonyms=str(synonyms)) as client:
        yield client


def why(client: httpx.Client, document: str, query: str = QUERY, **more: Any) -> dict[str, Any]:
    response = client.post("/v1/explain", json={"id": document, "query": query, **more})
    assert response.status_code == 200, response.text
    read_whole(response.content, ExplainResult)
    return response.json()


@pytest.mark.parametrize(
    "search", [{"candidates": 1}, {"sort": ["-price"]}, {"retriever": "lexical", "min_score": 0.1}]
)
def test_a_match_has_its_rank_in_the_paged_search(client: httpx.Client, search: dict[str, Any]) -> None:
    query = {"query": "sofa or a desk lamp", "match": "any", **search}
    pages = [client.post("/search", json={**query, "offset": at, "top_k": 1}).json() for at in range(6)]
    found = [*map(ids, pages)]
    assert len(found[0]) and len({each["total"] for each in pages}) == 1
    for rank, (name,) in enumerate(filter(None, found), 1):
        explained = why(client, name, **query)
        assert (explained["found"], explained["rank"], explained["cut_by"]) == (True, rank, None)
        assert explained["total"] == pages[0]["total"]
        assert explained["score"] == pages[rank - 1]["hits"][0]["score"]
        assert f"Found at rank {rank} of" in explained["summary"]


def test_what_lacks_words_and_is_not_near_is_no_match(client: httpx.Client) -> None:
    lacks = why(client, "lamps")
    assert (lacks["found"], lacks["rank"], lacks["cut_by"]) == (False, None, "match")
    assert lacks["words"] == {"matched": ["lamp"], "missing": ["desk"], "because": {}}
    assert lacks["ranks"] == {"dense": 5, "lexical": 3, "fused": 4}
    assert lacks["summary"].startswith(
        "Not found: it holds 'lamp', but not 'desk', and 4 documents are nearer. Its cosine is 0.61; "
    )
    none = why(client, "tea", retriever="lexical")
    assert none["cut_by"] == "match" and "lexical" not in none["ranks"]
    assert "it does not hold 'desk' or 'lamp'" in none["summary"]
    assert none["read"] == {"tokens": 64, "limit": 64, "truncated": True}
    assert none["summary"].endswith("The encoder read only its first 64 tokens.")
    far = why(client, "bed", "couch", retriever="dense")
    assert far["cut_by"] == "match" and far["summary"].startswith("Not found: 3 documents are nearer.")
    near = why(client, "lamps", match="any", candidates=1, fusion={"method": "rrf"}, query="oak honey")
    assert near["cut_by"] == "candidates" and "`candidates` asks for more" in near["summary"]


def test_synonyms_count_as_held_and_are_named(client: httpx.Client) -> None:
    found = why(client, "bed", "couch", retriever="lexical")
    assert found["words"] == {"matched": ["couch"], "missing": [], "because": {"couch": "sofa"}}
    assert found["summary"] == "Found at rank 1 of 2: it holds 'sofa' (for 'couch')."
    assert why(client, "bed", "linen")["words"] == {"matched": ["linen"], "missing": [], "because": {}}


def test_the_smallest_part_of_a_filter_that_excludes_it(client: httpx.Client) -> None:
    cheap = {"price": {"lt": 6}}
    asked = {"and": [{"owner": "ann"}, {"or": [cheap, {"price": 9}]}, {"not": {"owner": "ann"}, **cheap}]}
    found = why(client, "desk", filter=asked)
    assert found["cut_by"] == "filter" and not found["found"]
    assert found["filter"] == [{"or": [cheap, {"price": 9}]}, {"not": {"owner": "ann"}}, cheap]
    assert '{"price":{"lt":6}}' in found["summary"]
    assert why(client, "desk", filter={"owner": "ann", "price": 70})["filter"] == []


def test_a_phrase_an_exclusion_and_the_least_score_cut_off(client: httpx.Client) -> None:
    phrase = why(client, "desk", '"desk lamp" -brass')
    assert (phrase["cut_by"], phrase["constraints"]) == ("syntax", ['"desk lamp"'])
    outside = why(client, "lamp", '"desk lamp"', filter={"owner": "bob"})
    assert (outside["cut_by"], outside["constraints"]) == ("filter", [])
    assert why(client, "lamp", 'lamp -title:floor -"of brass"')["constraints"] == ['-"of brass"']
    assert why(client, "desk", '"desk lamp"', syntax="plain")["found"]
    low = why(client, "desk", min_score=0.99)
    assert (low["cut_by"], low["found"], low["total"]) == ("min_score", False, 0)
    assert low["summary"] == f"Not found: its score {low['score']:.3g} is below `min_score` 0.99."
    assert why(client, "desk", group_by={"field": "owner"})["cut_by"] == "group_by"


def test_it_needs_a_known_id_and_a_query(client: httpx.Client) -> None:
    for asked in ({"id": "bed", "filter": {"owner": "bob"}}, {"id": "bed"}, {"query": "bed"}):
        assert_problem(client.post("/explain", json=asked), 422, "invalid_request")
    assert_problem(client.post("/explain", json={"id": "no", "query": "bed"}), 404, "document_not_found")


def test_a_key_with_a_filter_learns_nothing_of_other_documents(root: Path, serve: Serve) -> None:
    with serve(root, **tenants(root.parent, ann='owner = "ann"')) as client:
        assert_problem(client.post("/explain", json={"id": "lamp", "query": QUERY}), 401, "key_missing")
        client.headers["X-API-Key"] = "key of ann"
        hidden = client.post("/explain", json={"id": "bed", "query": "sofa"})
        assert_problem(hidden, 404, "document_not_found")
        found = why(client, "lamps", "honey", filter={"price": 5}, match="any")
        assert found["filter"] == [{"price": 5}] and found["ranks"]["dense"] <= 2
        assert why(client, "desk", "honey", match="any")["total"] == 3
