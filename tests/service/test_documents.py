"""`GET /documents`: every live document once, in the order of ids, a page at a time."""

import asyncio
import hashlib
import json
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.client import AsyncGlowClient, GlowClient
from glow.contract import DocumentsResult
from glow.index.stored_fields import STORED_FIELDS
from glow_service.search.plan import MAX_ANSWER_BYTES
from tests.made_index import deleted, opened, upserted
from tests.records import read_whole
from tests.service.asking import Serve, assert_problem

LATE = [
    {"_id": f"late/{number:02}", "text": "A late owl.", "lang": "xx", "year": number} for number in range(7)
]


@pytest.fixture
def changed(toy_index: Path, toy_model: Path, tmp_path: Path) -> IndexRoot:
    """The toy documents, some of them replaced or deleted by a delta."""
    root = IndexRoot(Path(shutil.copytree(toy_index, tmp_path / "changed")))
    upserted(root, toy_model, [*LATE, {"_id": "toy/3", "text": "Replaced.", "lang": "xx"}])
    deleted(root, "toy/4", "late/05")
    return root


def pages(client: httpx.Client, **asked: Any) -> list[list[str]]:
    """The ids of all pages."""
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
        assert pages(client, after="zz") == [[]]
        for limit in (3, 100):
            rest = pages(client, limit=limit, after="late/01", filter='{"lang": "xx"}')
            assert joined(rest) == ["late/02", "late/03", "late/04", "late/06", "toy/3"]
        assert pages(client, after="toy/9999", filter='{"lang": "xx"}') == [[]]
        for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"top": 1}, {"filter": "lang"}):
            assert_problem(client.get("/documents", params=wrong), 422, "invalid_request")
        unknown = client.get("/documents", params={"filter": '{"nope": 1}'})
        assert_problem(unknown, 422, "invalid_filter")

        with GlowClient(str(client.base_url)) as caller:
            received = list(caller.documents(page_size=9))
            assert received == [held[name] for name in sorted(held)]
            assert [each.id for each in caller.documents(filter={"year": {"lt": 2}})] == [
                "late/00",
                "late/01",
            ]
            assert caller.suggest("lat").suggestions[0].text == "late"
            assert caller.explain("owl", "late/00", retriever="lexical").found

        async def gathered() -> list[Any]:
            async with AsyncGlowClient(str(client.base_url)) as caller:
                return [each async for each in caller.documents("late/00", page_size=9)]

        assert asyncio.run(gathered()) == received[1:]


def test_a_key_with_a_filter_lists_its_own_documents(
    changed: IndexRoot, serve: Serve, tmp_path: Path
) -> None:
    tenants, digest = tmp_path / "tenants.toml", hashlib.sha256(b"key of ann").hexdigest()
    tenants.write_text('[ann]\nfilter = { lang = "xx" }\n')
    with serve(changed.path, api_keys=f"ann:{digest}", tenants=str(tenants)) as client:
        assert_problem(client.get("/documents"), 401, "key_missing")
        client.headers["X-API-Key"] = "key of ann"
        own = ["late/00", "late/01", "late/02", "late/03", "late/04", "late/06", "toy/3"]
        assert joined(pages(client, limit=2)) == own
        others = {"or": [{"field": "lang", "eq": "en"}, {"field": "year", "lt": 2}]}
        assert pages(client, filter=json.dumps(others)) == [["late/00", "late/01"]]
        assert client.post("/documents", json={"_id": "a", "text": "b"}).status_code == 404


def test_a_page_of_long_documents_ends_early(build_index: Any, serve: Serve) -> None:
    count, size = 24, 900_000
    long = [{"_id": f"{number:02}", "text": "x", "rest": "y" * size} for number in range(count)]
    with serve(build_index(long)) as client:
        found = pages(client, limit=1000)
        assert joined(found) == [each["_id"] for each in long]
        assert max(map(len, found)) == MAX_ANSWER_BYTES // size + 1
