"""A running service follows deltas: what was added is found, what was deleted is gone, in every answer of the contract."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import CompactOptions, DeleteOptions, UpsertOptions
from glow_index_builder.deltas.upsert import delete, upsert
from glow_index_builder.progress import Stages
from tests.made_index import write
from tests.service.asking import Serve
from tests.until import until

RETRIEVERS = ("dense", "lexical", "hybrid")
NEW = {
    "_id": "new/volcano",
    "title": "Volcanoes",
    "text": "A volcano spits lava over the island.",
    "lang": "is",
}


@pytest.fixture
def client(index_copy: Path, serve: Serve) -> Iterator[httpx.Client]:
    """A client of a service over a copy of the toy index, ready."""
    with serve(index_copy) as client:
        yield client


def change(client: httpx.Client, work: Callable[[], Any]) -> None:
    """Runs a command and waits until the service has the version that it made."""
    before = client.get("/info").json()["index"]["version"]
    work()
    until(lambda: client.get("/info").json()["index"]["version"] != before)


def found(client: httpx.Client, query: str, **body: Any) -> list[str]:
    answer = client.post("/search", json={"query": query, "top_k": 60, **body})
    assert answer.status_code == 200, answer.text
    return [hit["id"] for hit in answer.json()["hits"]]


def test_changes_are_seen_everywhere_and_compacting_changes_nothing(
    client: httpx.Client, index_copy: Path, toy_model: Path, tmp_path: Path
) -> None:
    source = write(tmp_path / "new.jsonl", [NEW, {"_id": "toy/1", "text": "nothing of the kind"}])
    (tmp_path / "ids").write_text("toy/0\n")
    stages = Stages(io.StringIO())
    options = UpsertOptions(index_root=index_copy, source=str(source), model=toy_model)
    change(client, lambda: upsert(options, stages))
    change(client, lambda: delete(DeleteOptions(index_root=index_copy, source=str(tmp_path / "ids")), stages))
    seen = look(client)
    change(client, lambda: compact(CompactOptions(index_root=index_copy), stages))
    assert look(client) == seen


def look(client: httpx.Client) -> list[Any]:
    """What a service over the changed index must say, checked; and what a compacted one must say again."""
    info = client.get("/info").json()["index"]
    assert info["documents"] == 50 and {"impacts", "columns", "explain"} <= set(info["components"])
    assert client.get("/readyz").status_code == 200
    assert client.get("/documents/toy/0").status_code == 404
    assert client.get("/documents/new/volcano").json()["metadata"] == {"lang": "is"}
    assert client.get("/documents/toy/1").json()["fields"] == {"text": "nothing of the kind"}
    said: list[Any] = []
    for retriever in RETRIEVERS:
        hits = found(client, "volcano lava island", retriever=retriever)
        assert hits[0] == "new/volcano" and "toy/0" not in hits
        assert "toy/0" not in found(client, "bees find the way home by the sun", retriever=retriever)
        wanted = {"field": "lang", "eq": "is"}
        assert found(client, "volcano", retriever=retriever, filter=wanted) == ["new/volcano"]
        pages = [found(client, "the", retriever=retriever, top_k=7, offset=7 * page) for page in range(8)]
        said += [hits, pages]
    every = [identifier for page in said[1] for identifier in page]
    assert len(every) == len(set(every)) == 50
    body = {"query": "lava", "retriever": "hybrid", "top_k": 1, "explain": True, "highlight": True}
    answer = client.post("/search", json={**body, "facets": [{"field": "lang"}], "candidates": 200}).json()
    hit = answer["hits"][0]
    assert "<em>lava</em>" in hit["highlights"]["text"][0]
    assert [each["word"] for each in hit["explanation"]["lexical"]] == ["lava"]
    assert {"value": "is", "count": 1} in answer["facets"]["lang"]["values"]
    return [*said, hit, answer["facets"]]
