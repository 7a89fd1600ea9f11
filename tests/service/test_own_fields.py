"""What names a document is found, and filters may name documents, over HTTP and with a delta."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.made_index import deleted, documents, made, upserted, write
from tests.service.asking import Serve, assert_problem, ids

PUMP = {"_id": "PX-4711", "title": "A pump", "text": "It moves water.", "brand": "Kolmar", "year": 2001}


@pytest.fixture(scope="module")
def folder(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose part numbers and notes stand in a base and a delta; one document of each is deleted."""
    target = tmp_path_factory.mktemp("own-fields")
    records = [*documents(60), PUMP, {**PUMP, "_id": "PX-4712", "note": "a spare gasket of rubber"}]
    root = made(toy_model, write(target / "base.jsonl", records), target / "index", text_field=("note",))
    upserted(root, toy_model, [{**PUMP, "_id": "PX-4713"}, {**PUMP, "_id": "PX-4714"}, {**PUMP, "_id": "17"}])
    deleted(root, "PX-4712x", "PX-4711", "PX-4714")
    return target / "index"


@pytest.fixture
def http(serve: Serve, folder: Path) -> Iterator[httpx.Client]:
    with serve(folder) as client:
        yield client


def test_a_part_number_finds_its_document_and_a_filter_names_documents(http: httpx.Client) -> None:
    def search(**members: Any) -> dict[str, Any]:
        return dict(http.post("/search", json={"top_k": 20, **members}).raise_for_status().json())

    for name in ("PX-4712", "PX-4713", "px 4713"):
        hit = search(query=name, retriever="lexical", explain=True)["hits"][0]
        assert hit["id"] == name.upper().replace(" ", "-")
        assert [word["word"] for word in hit["explanation"]["lexical"]] == ["px", name[-4:]]
    marked = search(query="gasket", retriever="lexical", highlight={"fields": ["note"]})
    assert ids(marked) == ids(search(query='note:gasket "spare gasket"', retriever="lexical")) == ["PX-4712"]
    assert marked["hits"][0]["highlights"] == {"note": ["a spare <em>gasket</em> of rubber"]}
    others = ids(search(query="water tea -kolmar"))
    assert others and not {*others} & {"17", "PX-4712", "PX-4713"}
    chosen = {"field": "_id", "in": ["PX-4711", "PX-4712", "PX-4713", "d/7", 17, "nobody"]}
    assert sorted(ids(search(query="water", match="any", filter=chosen))) == [
        "17",
        "PX-4712",
        "PX-4713",
        "d/7",
    ]
    assert ids(search(filter={"field": "_id", "eq": "PX-4713"})) == ["PX-4713"]
    assert sorted(ids(search(filter={"_id": chosen["in"]}))) == ["17", "PX-4712", "PX-4713", "d/7"]
    assert ids(search(filter={"_id": "PX-4713"})) == ["PX-4713"]
    rest = search(query="pump", filter={"and": [{"not": chosen}, {"field": "year", "lte": 2001}]})
    assert rest["hits"] and not {*ids(rest)} & {"17", "PX-4711", "PX-4712", "PX-4713", "PX-4714"}


@pytest.mark.parametrize(
    ("condition", "detail"),
    [
        ({"gte": "a"}, "'_id' takes 'eq' or 'in', found 'gte'"),
        ({"exists": True}, "'_id' takes 'eq' or 'in', found 'exists'"),
        ({}, "'_id' takes 'eq' or 'in', found 'none'"),
        ({"in": "PX-4711"}, "expected a list of ids, found 'PX-4711'"),
        ({"eq": 1.5}, "expected an id, found 1.5"),
    ],
)
def test_an_id_has_no_range(http: httpx.Client, condition: dict[str, Any], detail: str) -> None:
    found = http.post("/search", json={"query": "pump", "filter": {"field": "_id", **condition}})
    assert_problem(found, 422, "invalid_filter")
    assert found.json()["errors"][0]["detail"] == detail
