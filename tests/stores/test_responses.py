"""Whole responses of a service whose index is in Milvus are those of one whose index is in files."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from glow.artifact import IndexRoot
from glow.index.milvus import collections_of, connect
from glow_service.app import create_app
from glow_service.settings import Settings
from tests.conftest import DATA
from tests.made_index import compacted, deleted, documents, made, upserted, write
from tests.service.conftest import _serve_in_thread
from tests.stores.conftest import assert_alike
from tests.until import until

pytestmark = pytest.mark.filterwarnings("ignore")
Json = dict[str, Any]
Services = tuple[httpx.Client, httpx.Client]
BEES = {"query": "how do bees find home at night", "match": "any"}
WORDS = {"query": "coffee beans grow in gardens", "retriever": "lexical", "match": "any"}
FILTERS: list[Json] = [
    {"field": "lang", "eq": "de"},
    {"field": "lang", "in": ["en", "fr"]},
    {"field": "year", "gte": 2004, "lt": 2009},
    {"field": "day", "gte": "2024-03-01"},
    {"field": "open", "exists": True},
    {"field": "tags", "eq": "t1"},
    {"field": "rare", "eq": "once"},
    {"not": {"field": "open", "eq": True}},
    {"and": [{"field": "lang", "eq": "en"}, {"field": "year", "gt": 2003}]},
    {"or": [{"field": "lang", "eq": "fr"}, {"field": "open", "eq": False}]},
]
REQUESTS: dict[str, Json] = {
    **{name: {**BEES, "retriever": name} for name in ("dense", "lexical", "learned-sparse", "hybrid")},
    **{
        f"filter {number} {kind['retriever']}": {**kind, "filter": each}
        for number, each in enumerate(FILTERS)
        for kind in ({**BEES, "retriever": "hybrid"}, WORDS, {**WORDS, "retriever": "learned-sparse"})
    },
    "filter alone": {"filter": FILTERS[8], "top_k": 5},
    "reranked": {**BEES, "rerank": True},
    "rrf": {**BEES, "fusion": {"method": "rrf"}},
    "facets": {
        **BEES,
        "match": "auto",
        "facets": [{"field": "lang"}, {"field": "tags"}, {"field": "year", "limit": 3}],
    },
    "sorted": {**BEES, "sort": [{"field": "year", "order": "desc"}, {"field": "day"}], "candidates": 60},
    "groups": {**BEES, "group_by": {"field": "lang", "size": 2}},
    "boosts": {**BEES, "boosts": [{"filter": FILTERS[0], "factor": 3.0}, {"recency": {"field": "day"}}]},
    "like": {"like": {"id": "d/9"}},
    "explained": {**BEES, "explain": True, "top_k": 3},
    "explained learned": {**WORDS, "retriever": "learned-sparse", "explain": True, "top_k": 3},
    "highlighted": {**BEES, "highlight": True, "fields": ["title", "lang"]},
    "vectors": {**BEES, "vectors": True, "top_k": 2},
    "second page": {**BEES, "offset": 7, "top_k": 8},
    "all": {"query": "tea", "retriever": "lexical", "top_k": 100, "candidates": 500},
    "no such word": {"query": "zzyzx", "retriever": "lexical"},
    "typo": {"query": "glacirs move slowly"},
    "ties": {"query": "owls", "retriever": "lexical", "top_k": 40, "fields": []},
}
"""Name -> a search."""


@pytest.fixture(scope="module", params=[False, True], ids=["documents", "passages"])
def pair(
    request: pytest.FixtureRequest, learned_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[IndexRoot, IndexRoot]:
    """The same documents in files, and in Milvus; a busy machine is slow."""
    patched = pytest.MonkeyPatch()
    request.addfinalizer(patched.undo)
    patched.setenv("GLOW_STORE_TIMEOUT_MS", "30000")
    folder = tmp_path_factory.mktemp("pair")
    source = write(folder / "corpus.jsonl", documents(120))
    given: Json = {"index": "flat", "learned": True, "passages": request.param}
    given["rerank"] = DATA / "toy-reranker"
    files = made(learned_model, source, folder / "files", **given)
    return files, made(
        learned_model, source, folder / "milvus", **given, store=f"milvus://{folder / 'rows.db'}"
    )


@pytest.fixture(scope="module")
def services(pair: tuple[IndexRoot, IndexRoot]) -> Iterator[Services]:
    """A service for each."""
    with served(pair[0]) as files, served(pair[1]) as milvus:
        yield files, milvus


def served(root: IndexRoot) -> AbstractContextManager[httpx.Client]:
    """In a thread: Milvus Lite is open in one process."""
    settings = Settings(index_root=root.path, default_timeout_ms=30_000, cache_entries=0)
    app: FastAPI = create_app(settings, on_failure=lambda: None)
    return _serve_in_thread(app)


def body_of(response: httpx.Response) -> Any:
    """A response without what differs from one run to the next."""
    assert response.status_code == 200, response.text
    found = json.loads(response.content)
    # What is in Milvus is looked through among candidates alone, so not all matches are known.
    for name in ("timings_ms", "took_ms", "request_id", "index", "total"):
        found.pop(name, None)
    for counts in found.get("facets", {}).values():
        del counts["approximate"]
    return found


def check(services: Services, name: str) -> Any:
    """Both answer alike; returns the response."""
    found = [body_of(service.post("/search", json=REQUESTS[name])) for service in services]
    assert_alike(*found)
    return found[0]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_search_is_answered_alike(services: Services, name: str) -> None:
    found = check(services, name)
    assert bool(found["hits"]) is (name != "no such word")
    assert found.get("degraded", []) == []


def test_documents_batches_and_info_are_alike(services: Services) -> None:
    for path in ("/documents/d%2F77", "/documents/d%2F0"):
        found = [body_of(service.get(path)) for service in services]
        assert_alike(*found)
    assert [service.get("/documents/nowhere").status_code for service in services] == [404, 404]
    infos = [service.get("/info").json() for service in services]
    assert infos[0]["retrievers"] == infos[1]["retrievers"]
    searches = {"searches": [BEES, WORDS]}
    found = [service.post("/search/batch", json=searches).json()["results"] for service in services]
    hits = [[result["hits"] for result in results] for results in found]
    assert_alike(*hits)
    assert all(hits[0])


def responses(services: Services) -> dict[str, Any]:
    """Of a third of the requests; without `like`, because a document may be gone."""
    return {name: check(services, name) for name in list(REQUESTS)[::3] if name != "like"}


def wait_for_swaps(pair: tuple[IndexRoot, IndexRoot], services: Services) -> None:
    for root, service in zip(pair, services, strict=True):
        version = root.current()
        until(lambda: service.get("/info").json()["index"]["version"] == version)  # noqa: B023 - waited for here


def test_a_delta_and_its_compaction_are_answered_alike(
    pair: tuple[IndexRoot, IndexRoot], services: Services, learned_model: Path
) -> None:
    """Replaced, added and deleted documents; then merged, and rolled back; last, because it changes the indexes."""
    new = [{**each, "_id": f"d/{3 * number}"} for number, each in enumerate(documents(140)[120:130])]
    before = [root.current() for root in pair]
    seen = [responses(services)]
    for root in pair:
        upserted(root, learned_model, [*new, *documents(150)[140:]])
        deleted(root, "d/7", "d/119", "d/145")
    wait_for_swaps(pair, services)
    seen.append(responses(services))
    for root in pair:
        compacted(root)
    wait_for_swaps(pair, services)
    seen.append(responses(services))
    assert not (pair[1].folder(pair[1].current()) / "vectors.faiss").exists()
    assert seen[0] != seen[1]
    for root, version in zip(pair, before, strict=True):
        root.publish(version)
    wait_for_swaps(pair, services)
    assert_alike(responses(services), seen[0])


def test_a_component_that_is_away_is_named(
    learned_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each collection dropped by hand under a running service: never a wrong page."""
    monkeypatch.setenv("GLOW_STORE_TIMEOUT_MS", "30000")
    source = write(tmp_path / "corpus.jsonl", documents(60))
    store = f"milvus://{tmp_path / 'rows.db'}"
    given: Json = {"index": "flat", "passages": True, "store": store, "rerank": DATA / "toy-reranker"}
    root = made(learned_model, source, tmp_path / "index", **given)
    names = list(collections_of(root.folder(root.current())))
    vectors, rows, passages = names[0], *sorted(names[1:])
    assert "_documents_" in rows and "_vectors_" in passages
    with served(root) as service:
        drop(store, passages)
        asked = [{**BEES, **more} for more in ({}, {"rerank": True}, {"retriever": "dense"})]
        found = [service.post("/search", json=each).json() for each in asked]
        assert [each["degraded"] for each in found] == [[], ["rerank_partial"], []]
        assert all(each["hits"] for each in found)
        drop(store, vectors)
        partly = {**BEES, "allow_partial": True}
        assert service.post("/search", json=BEES).json()["code"] == "store_unavailable"
        assert service.post("/search", json=partly).json()["degraded"] == ["dense"]
        assert service.post("/search", json=WORDS).json()["degraded"] == []
        drop(store, rows)
        for body in (BEES, partly, WORDS):
            response = service.post("/search", json=body)
            assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert service.get("/documents/d%2F1").status_code == 503


def drop(address: str, name: str) -> None:
    connect(address).run(lambda client, _: client.drop_collection(name))
