"""`POST /explain`: why a search returns a document, or does not."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from glow.contract import ExplainResult
from glow_service.commands.explain import explain_command
from tests.made_index import made, write
from tests.records import read_whole
from tests.service.asking import Serve, assert_problem, ids

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
def root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    return made(toy_model, write(folder / "corpus.jsonl", DOCUMENTS), folder / "built").path


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
    assert_problem(
        client.post("/explain", json={"id": "bed", "filter": {"owner": "bob"}}), 422, "invalid_request"
    )
    assert_problem(client.post("/explain", json={"id": "bed"}), 422, "invalid_request")
    assert_problem(client.post("/explain", json={"query": "bed"}), 422, "invalid_request")
    assert_problem(client.post("/explain", json={"id": "no", "query": "bed"}), 404, "document_not_found")


def test_a_key_with_a_filter_learns_nothing_of_other_documents(root: Path, serve: Serve) -> None:
    tenants = root.with_name("tenants.toml")
    tenants.write_text('[ann]\nfilter = { owner = "ann" }\n')
    digest = hashlib.sha256(b"key of ann").hexdigest()
    with serve(root, api_keys=f"ann:{digest}", tenants=str(tenants)) as client:
        assert_problem(client.post("/explain", json={"id": "lamp", "query": QUERY}), 401, "key_missing")
        client.headers["X-API-Key"] = "key of ann"
        assert_problem(
            client.post("/explain", json={"id": "bed", "query": "sofa"}), 404, "document_not_found"
        )
        found = why(client, "lamps", "honey", filter={"price": 5}, match="any")
        assert found["filter"] == [{"price": 5}] and found["ranks"]["dense"] <= 2
        assert why(client, "desk", "honey", match="any")["total"] == 3


def test_the_command_says_it_first(root: Path) -> None:
    app, asked = typer.Typer(), ["--index-root", str(root), "--query", "couch", "--id", "desk"]
    app.command()(explain_command)
    done = CliRunner().invoke(app, [*asked, "--filter", '{"owner": "bob"}'])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith('desk  Not found: the filter excludes it: {"owner":"bob"}.\n')
    assert "query  couch" in done.stdout
    (synonyms := root.with_name("couches.txt")).write_text("couch => sofa\n")
    more = ["--id", "bed", "--json", "-", "--synonyms", str(synonyms), "--retriever", "lexical"]
    done = CliRunner().invoke(app, [*asked, *more])
    found = json.loads(done.stdout)
    assert [each["found"] for each in found["documents"]] == [False, True]
    assert found["documents"][1]["words"]["because"] == {"couch": "sofa"} and len(found["hits"]) == 2
