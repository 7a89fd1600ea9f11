"""`glow.client` against the real service: its answers are read whole, and mean what HTTP says."""

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.client import (
    AccessDeniedError,
    AsyncGlowClient,
    BadRequestError,
    GlowClient,
    NotFoundError,
    RetryPolicy,
    SearchResult,
)
from tests.service.asking import Serve

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_a_search_says_what_http_says(server: Any, http: httpx.Client) -> None:
    asked = {"query": "how do bees find home", "top_k": 3, "offset": 1, "fields": ["title", "anchor"]}
    expected = http.post("/v1/search", json=asked).json()
    with GlowClient(server.url) as client:
        found = client.search(asked["query"], top_k=3, offset=1, fields=["title", "anchor"])
    hits = [(hit["rank"], hit["id"], hit["score"]) for hit in expected["hits"]]
    assert [(hit.rank, hit.id, hit.score) for hit in found.hits] == hits
    assert found.hits[0].text("title") == expected["hits"][0]["fields"]["title"]
    assert found.hits[0].metadata == expected["hits"][0]["metadata"]
    assert [term.word for term in found.query.terms] == ["how", "do", "bees", "find", "home"]
    assert (found.index.version, found.index.model) == tuple(expected["index"].values())
    assert found.took_ms > 0 and found.timings_ms


def test_a_document_or_a_vector_stands_in_place_of_a_query(server: Any) -> None:
    with GlowClient(server.url) as client:
        alike = client.search(like={"id": "toy/0"}, top_k=3)
        pages = list(client.search_pages(like={"id": "toy/0"}, page_size=2, limit=3))
        vector = client.embeddings("bees").vectors[0]
        batch = client.search_batch([{"vector": vector, "top_k": 1}, {"like": {"id": "toy/0"}, "top_k": 3}])
    assert [hit.id for page in pages for hit in page.hits] == [hit.id for hit in alike.hits]
    assert all(isinstance(result, SearchResult) for result in batch)
    assert [hit.id for hit in batch[1].hits] == [hit.id for hit in alike.hits]


def test_pages_of_the_whole_collection_hold_each_document_once(server: Any) -> None:
    with GlowClient(server.url) as client:
        ids = [hit.id for hit in client.search_hits("water", page_size=7, limit=60, match="any", fields=[])]
        pages = list(client.search_pages("water", page_size=7, limit=60, match="any"))
        whole = client.search("water", top_k=50, candidates=60, match="any")
    assert len(ids) == len(set(ids)) == 50
    assert [len(page.hits) for page in pages] == [7] * 7 + [1]
    assert ids == [hit.id for hit in whole.hits]


CALLS = {"document": "toy/0", "embeddings": ["bees", "sea"], "info": None, "health": None, "ready": None}


def test_both_clients_answer_the_same_on_every_route(server: Any) -> None:
    async def ask() -> list[Any]:
        async with AsyncGlowClient(server.url) as client:
            page = [hit async for hit in client.search_hits("bees", limit=5)]
            return [page, *[await getattr(client, name)(*filter(None, [CALLS[name]])) for name in CALLS]]

    with GlowClient(server.url) as client:
        page = [*client.search_hits("bees", limit=5)]
        expected = [page, *[getattr(client, name)(*filter(None, [CALLS[name]])) for name in CALLS]]
    assert asyncio.run(ask()) == expected
    _, document, embeddings, info, alive, ready = expected
    assert document.fields["title"] == ("Bees",) and document.metadata == {"lang": "en", "year": 2000}
    assert len(embeddings.vectors[0]) == info.index.dimensions
    assert sum(value**2 for value in embeddings.vectors[1]) == pytest.approx(1, abs=1e-5)
    assert (info.index.documents, "dense" in info.retrievers) == (50, True)
    assert alive and ready.is_ready


def test_a_batch_mixes_results_and_problems(server: Any) -> None:
    with GlowClient(server.url) as client:
        good, bad = client.search_batch(["bees", {"query": " ", "top_k": 2}])
    assert isinstance(good, SearchResult) and good.hits
    assert isinstance(bad, BadRequestError) and bad.code == "invalid_query"


def test_refusals_are_typed_and_name_the_place(server: Any) -> None:
    with GlowClient(server.url) as client:
        with pytest.raises(BadRequestError) as caught:
            client.search("bees", top_k=0)
        assert (caught.value.code, caught.value.faults[0].pointer) == ("invalid_request", "/top_k")
        assert caught.value.request_id
        with pytest.raises(NotFoundError) as missing:
            client.document("nope/nothing")
        assert missing.value.code == "document_not_found"


def test_a_key_opens_a_service_that_needs_one(serve: Serve) -> None:
    digest = hashlib.sha256(b"the-key").hexdigest()
    quick = RetryPolicy(attempts=200, first_pause_s=0.05)
    with serve(api_keys=f"tester:{digest}", wait=False) as http:
        url = str(http.base_url)
        with GlowClient(url, api_key="the-key", retry=quick) as client:
            assert client.search("bees").hits  # while it loads, a 503 is tried again
        for key in (None, "another"):
            with GlowClient(url, api_key=key) as client, pytest.raises(AccessDeniedError):
                client.search("bees")


def examples() -> list[str]:
    page = (DOCS / "client.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "glow.adapters" not in block]


@pytest.mark.parametrize("place", range(len(examples())))
def test_the_examples_of_the_documentation_run(server: Any, place: int) -> None:
    code = examples()[place].replace("http://127.0.0.1:8080", server.url)
    exec(compile(code, f"docs/client.md, example {place + 1}", "exec"), {})  # noqa: S102 (our own page)
