"""`glow.client` against the real service: its answers are read whole, and mean what HTTP says; `GET /documents` by pages."""

import asyncio
import json
import re
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.client import (
    AccessDeniedError,
    AsyncGlowClient,
    BadRequestError,
    GlowClient,
    NotFoundError,
    RetryPolicy,
    SearchResult,
)
from glow.contract import DocumentsResult
from glow.index.stored_fields import STORED_FIELDS
from tests.made_index import deleted, opened, upserted
from tests.records import read_whole
from tests.service.asking import BuildIndex, Serve, assert_problem, sha256, tenants


@pytest.fixture(scope="module")
def url(http: httpx.Client) -> str:
    return str(http.base_url)


CALLS = {"document": "toy/0", "embeddings": ["bees", "sea"], "info": None, "health": None, "ready": None}


def test_both_clients_answer_the_same_on_every_route(url: str) -> None:
    async def ask() -> list[Any]:
        async with AsyncGlowClient(url) as client:
            page = [hit async for hit in client.search_hits("bees", limit=5)]
            return [page, *[await getattr(client, name)(*filter(None, [CALLS[name]])) for name in CALLS]]

    with GlowClient(url) as client:
        page = [*client.search_hits("bees", limit=5)]
        expected = [page, *[getattr(client, name)(*filter(None, [CALLS[name]])) for name in CALLS]]
        assert client.explain("bees", "toy/0", retriever="lexical").found
    assert asyncio.run(ask()) == expected
    _, document, embeddings, info, alive, ready = expected
    assert document.fields["title"] == ("Bees",) and document.metadata == {"lang": "en", "year": 2000}
    assert len(embeddings.vectors[0]) == info.index.dimensions
    assert sum(value**2 for value in embeddings.vectors[1]) == pytest.approx(1, abs=1e-5)
    assert (info.index.documents, "dense" in info.retrievers) == (50, True)
    assert alive and ready.is_ready


def test_refusals_are_typed_and_name_the_place(url: str) -> None:
    with GlowClient(url) as client:
        with pytest.raises(BadRequestError) as caught:
            client.search("bees", top_k=0)
        assert (caught.value.code, caught.value.faults[0].pointer) == ("invalid_request", "/top_k")
        assert caught.value.request_id
        with pytest.raises(NotFoundError) as missing:
            client.document("nope/nothing")
        assert missing.value.code == "document_not_found"
        good, bad = client.search_batch(["bees", {"query": " ", "top_k": 2}])
    assert isinstance(good, SearchResult) and good.hits
    assert isinstance(bad, BadRequestError) and bad.code == "invalid_query"


def test_a_key_opens_a_service_that_needs_one(serve: Serve) -> None:
    quick = RetryPolicy(attempts=200, first_pause_s=0.05)
    with serve(api_keys=f"tester:{sha256('the-key')}", wait=False) as http:
        with GlowClient(str(http.base_url), api_key="the-key", retry=quick) as client:
            assert client.search("bees").hits  # while it loads, a 503 is tried again
        for key in (None, "another"):
            with pytest.raises(AccessDeniedError), GlowClient(str(http.base_url), api_key=key) as client:
                client.search("bees")


def examples() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "glow.adapters" not in block]


@pytest.mark.parametrize("place", range(len(examples())))
def test_the_examples_of_the_documentation_run(url: str, place: int) -> None:
    code = examples()[place].replace("http://127.0.0.1:8080", url)
    exec(compile(code, f"docs/client.md, example {place + 1}", "exec"), {})  # noqa: S102 (our own page)


# `GET /documents`: every live document once, in the order of ids, a page at a time.

LATE = [
    {"_id": f"late/{number:02}", "text": "A late owl.", "lang": "xx", "year": number} for number in range(7)
]


@pytest.fixture(scope="module")
def changed(toy_index: Path, toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    """The toy documents, some of them replaced or deleted by a delta."""
    root = IndexRoot(Path(shutil.copytree(toy_index, tmp_path_factory.mktemp("documents") / "changed")))
    upserted(root, toy_model, [*LATE, {"_id": "toy/3", "text": "Replaced.", "lang": "xx"}])
    deleted(root, "toy/4", "late/05")
    return root


def pages(client: httpx.Client, **asked: Any) -> list[list[str]]:
    found = []
    while True:
        response = client.get("/documents", params=asked)
        assert response.status_code == 200, response.text
        read_whole(response.content, DocumentsResult)
        found.append([each["id"] for each in response.json()["documents"]])
        if (following := response.json().get("next")) is None:
            return found
        assert following == found[-1][-1]
        asked["after"] = following


def joined(found: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(found))


def test_pages_hold_every_live_document_once(changed: IndexRoot, serve: Serve) -> None:
    held = {each.id: each for each in opened(changed)[STORED_FIELDS].scan()}
    with serve(changed.path) as client:
        for size in (1, 7, 1000):
            found = pages(client, limit=size)
            assert joined(found) == sorted(held), size
            assert all(len(page) == size for page in found[:-1]) and found[-1]
        one = client.get("/documents", params={"after": "toy/2~", "limit": 1}).json()["documents"][0]
        assert one == {"id": "toy/3", "fields": {"text": "Replaced."}, "metadata": {"lang": "xx"}}
        assert pages(client, after="zz") == pages(client, after="toy/9999", filter='{"lang": "xx"}') == [[]]
        for limit in (3, 100):
            rest = pages(client, limit=limit, after="late/01", filter='{"lang": "xx"}')
            assert joined(rest) == ["late/02", "late/03", "late/04", "late/06", "toy/3"]
        for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"top": 1}, {"filter": "lang"}):
            assert_problem(client.get("/documents", params=wrong), 422, "invalid_request")
        unknown = client.get("/documents", params={"filter": '{"nope": 1}'})
        assert_problem(unknown, 422, "invalid_filter")

        with GlowClient(str(client.base_url)) as caller:
            received = list(caller.documents(page_size=9))
            assert caller.suggest("lat").suggestions[0].text == "late"
            few = [each.id for each in caller.documents(filter={"year": {"lt": 2}})]
        assert received == [held[name] for name in sorted(held)] and few == ["late/00", "late/01"]

        async def gathered() -> list[Any]:
            async with AsyncGlowClient(str(client.base_url)) as caller:
                return [each async for each in caller.documents("late/00", page_size=9)]

        assert asyncio.run(gathered()) == received[1:]


def test_a_key_with_a_filter_lists_its_own_documents(
    changed: IndexRoot, serve: Serve, tmp_path: Path
) -> None:
    with serve(changed.path, **tenants(tmp_path, ann='lang = "xx"')) as client:
        assert_problem(client.get("/documents"), 401, "key_missing")
        client.headers["X-API-Key"] = "key of ann"
        own = ["late/00", "late/01", "late/02", "late/03", "late/04", "late/06", "toy/3"]
        assert joined(pages(client, limit=2)) == own
        others = {"or": [{"field": "lang", "eq": "en"}, {"field": "year", "lt": 2}]}
        assert pages(client, filter=json.dumps(others)) == [["late/00", "late/01"]]
        assert client.post("/documents", json={"_id": "a", "text": "b"}).status_code == 404


def test_a_page_of_long_documents_ends_early(
    build_index: BuildIndex, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow_service.api.documents.MAX_ANSWER_BYTES", 80_000)
    long = [{"_id": f"{number:02}", "text": "x", "rest": "y" * 9_000} for number in range(24)]
    with serve(build_index(long)) as client:
        found = pages(client, limit=1000)
        assert joined(found) == [each["_id"] for each in long]
        assert max(map(len, found)) == 80_000 // 9_000 + 1
