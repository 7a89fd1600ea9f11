"""Writes over real HTTP, to a service and a `glow ingest` beside it: what is answered, who may, and that searches lose nothing."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.client import AsyncGlowClient, BadRequestError, GlowClient
from tests.attacks.harness import ROOT, serving
from tests.ingest.writing import KEY, KEY_FLAGS, WRITE, log_bytes, serving_writes
from tests.made_index import documents, made, write


@pytest.fixture(scope="module")
def root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    folder = tmp_path_factory.mktemp("written")
    return made(toy_model, write(folder / "first.jsonl", documents(30)), folder / "index", index="flat")


@pytest.fixture(scope="module")
def http(root: IndexRoot, toy_model: Path) -> Iterator[httpx.Client]:
    """A service, and what applies its writes."""
    command = [sys.executable, "-m", "glow", "ingest", "--index-root", str(root.path)]
    command += ["--model", str(toy_model), "--poll-interval-s", "0.1"]
    with (
        serving(root.path, *KEY_FLAGS, "--workers", "2", "--max-write-bytes", "65536") as service,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ingest,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        yield client
        ingest.terminate()


def found(http: httpx.Client, query: str) -> set[str]:
    hits = http.post("/search", json={"query": query, "top_k": 50, "retriever": "lexical"}).json()["hits"]
    return {hit["id"] for hit in hits}


def test_what_is_written_is_found_and_what_is_deleted_is_not(http: httpx.Client) -> None:
    records = [
        {"_id": f"n/{each}", "text": f"an ocelot in the snow, {each}", "lang": "xx"} for each in range(5)
    ]
    answer = http.post("/documents?wait=visible", json={"documents": records}, headers=WRITE)
    assert (answer.status_code, answer.json()["state"]) == (200, "visible")
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (5, 0)
    # Every worker serves it: whichever answers.
    assert all(found(http, "ocelot") == {f"n/{each}" for each in range(5)} for _ in range(8))
    one = http.post("/documents?wait=visible", json={"_id": "alone", "text": "an ocelot"}, headers=WRITE)
    assert one.json()["counts"]["new"] == 1
    gone = http.request("DELETE", "/documents/n/0?wait=visible", headers=WRITE)
    assert gone.json()["state"] == "visible"
    by_filter = {"filter": {"field": "lang", "eq": "xx"}}
    deleted = http.post("/documents/delete?wait=visible", json=by_filter, headers=WRITE)
    assert deleted.json()["counts"]["deleted"] == 4
    assert found(http, "ocelot") == {"alone"}
    by_ids = http.post("/documents/delete?wait=visible", json={"ids": ["alone"]}, headers=WRITE)
    assert by_ids.status_code == 200
    assert http.get("/documents/alone").status_code == 404


def test_a_patch_changes_metadata_and_nothing_else(http: httpx.Client) -> None:
    http.post(
        "/documents?wait=visible",
        json={"_id": "p", "text": "a patched pike", "a": 1, "b": {"c": 2}},
        headers=WRITE,
    )
    patch = {"a": None, "b": {"d": 3}, "price": 5}
    answer = http.patch("/documents/p?wait=visible", json=patch, headers=WRITE).json()
    assert (answer["state"], answer["counts"]["replaced"]) == ("visible", 1)
    document = http.get("/documents/p").json()
    assert (document["fields"], document["metadata"]) == (
        {"text": "a patched pike"},
        {"b": {"c": 2, "d": 3}, "price": 5},
    )
    cheap = http.post("/search", json={"query": "pike", "filter": {"price": {"lt": 6}}}).json()
    assert [hit["id"] for hit in cheap["hits"]] == ["p"]
    unknown = http.patch("/documents/nobody?wait=visible", json=patch, headers=WRITE).json()
    assert unknown["counts"]["unknown"] == 1
    http.request("DELETE", "/documents/p?wait=visible", headers=WRITE)


INVALID = "422 invalid_request"
EVERY = {"or": [{"field": "lang", "exists": True}, {"field": "lang", "exists": False}]}
NOTHING = {"not": {"field": "lang", "in": []}}


@pytest.mark.parametrize(
    ("path", "body", "error", "words"),
    [
        ("/documents", {"documents": []}, INVALID, "found 0 documents"),
        ("/documents", {"documents": [{"_id": "x"}]}, INVALID, "can be indexed; the first: no text"),
        ("/documents", {"documents": [{}] * 1_001}, INVALID, "at most"),
        ("/documents", {"documents": [{"_id": "x", "text": "y" * 70_000}]}, "413 body_too_large", "65536"),
        ("/documents?wait=soon", {"_id": "x", "text": "y"}, INVALID, "expected 'visible'"),
        ("/documents?wait=visible&wait_s=-1", {"_id": "x", "text": "y"}, INVALID, "at most 600 seconds"),
        ("/documents/delete", {}, INVALID, "'ids', 'filter' or 'all'"),
        ("/documents/delete", {"all": False}, INVALID, "matches every document"),
        ("/documents/delete", {"all": 1}, INVALID, "'all': true"),
        ("/documents/delete", {"ids": ["a"], "all": True}, INVALID, "can be combined"),
        ("/documents/delete", {"filter": {"and": []}}, INVALID, "matches every document"),
        ("/documents/delete", {"filter": {"not": {"or": []}}}, INVALID, "matches every document"),
        ("/documents/delete", {"filter": NOTHING}, INVALID, "matches every document"),
        ("/documents/delete", {"filter": EVERY}, INVALID, 'add "all": true'),
        ("/documents/delete", {"ids": [3]}, INVALID, "a list of ids"),
        ("/documents/delete", {"filter": {"field": "no", "eq": 1}}, "422 invalid_filter", "no field 'no'"),
    ],
)
def test_what_cannot_be_written_is_told(
    path: str, body: Any, error: str, words: str, http: httpx.Client, root: IndexRoot
) -> None:
    before = log_bytes(root)
    answer = http.post(path, json=body, headers=WRITE)
    assert f"{answer.status_code} {answer.json()['code']}" == error
    assert words in answer.json()["detail"]
    assert log_bytes(root) == before


def test_only_the_key_for_writing_writes(http: httpx.Client) -> None:
    body = {"_id": "x", "text": "y"}
    for method, path in (
        ("POST", "/documents"),
        ("POST", "/documents/delete"),
        ("PATCH", "/documents/x"),
        ("DELETE", "/documents/x"),
        ("GET", "/operations/x"),
    ):
        for prefix in ("", "/v1"):
            assert http.request(method, prefix + path, json=body).json()["code"] == "key_missing"
            wrong = http.request(method, prefix + path, json=body, headers={"X-API-Key": "another"})
            assert wrong.json()["code"] == "key_refused"
    assert http.get("/documents/d/0").status_code == 200  # reading is free here
    assert http.get("/operations/20200101T000000-00000000-1", headers=WRITE).status_code == 422
    assert http.get("/operations/nothing", headers=WRITE).json()["code"] == "invalid_query"


def test_without_a_key_nothing_can_be_written(root: IndexRoot) -> None:
    with serving_writes(root, write_key="") as http:
        for method, path in (("POST", "/documents"), ("DELETE", "/documents/x"), ("GET", "/operations/x")):
            answer = http.request(method, path, headers=WRITE)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_searches_lose_nothing_while_many_write(http: httpx.Client) -> None:
    over, statuses = threading.Event(), []

    def search() -> None:
        with httpx.Client(base_url=http.base_url, timeout=60) as client:
            while not over.is_set():
                statuses.append(client.post("/search", json={"query": f"owls {len(statuses)}"}).status_code)

    def send(writer: int, operations: list[str]) -> None:
        with httpx.Client(base_url=http.base_url, timeout=60, headers=WRITE) as client:
            for number in range(6):
                records = [
                    {"_id": f"w/{writer}/{number}/{each}", "text": "a walrus on ice"} for each in range(5)
                ]
                answer = client.post("/documents", json={"documents": records})
                assert answer.status_code == 202
                operations.append(answer.json()["operation"])

    operations: list[str] = []
    searcher = threading.Thread(target=search)
    searcher.start()
    writers = [threading.Thread(target=send, args=(writer, operations)) for writer in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    for operation in operations:
        _until_visible(http, operation)
    over.set()
    searcher.join()
    assert len(set(operations)) == 18
    assert set(statuses) == {200}
    wanted = {"query": "walrus", "retriever": "lexical", "top_k": 100}
    assert len(http.post("/search", json=wanted).json()["hits"]) == 90


def _until_visible(http: httpx.Client, operation: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while True:
        state: dict[str, Any] = http.get(f"/operations/{operation}", headers=WRITE).json()
        if state["state"] == "visible":
            return state
        assert state["state"] in ("waiting", "applied"), state
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_client_writes(http: httpx.Client) -> None:
    with GlowClient(str(http.base_url), api_key=KEY, timeout_s=60) as client:
        written = client.write([{"_id": "c/1", "text": "a capybara"}, {"_id": "c/2"}], wait_s=30)
        assert (written.state, written.accepted, written.counts["new"]) == ("visible", 1, 1)
        assert [(each.place, each.id) for each in written.rejects] == [(1, "c/2")]
        assert [hit.id for hit in client.search("capybara", retriever="lexical").hits] == ["c/1"]
        deleted = client.delete(["c/1"])
        assert deleted.state == "waiting"
        _until_visible(http, deleted.operation)
        assert client.operation(deleted.operation).version == client.info().index.version
        gone = client.delete_where({"field": "lang", "eq": "zz"}, wait_s=30)
        assert (gone.state, gone.counts["deleted"]) == ("visible", 0)
        with pytest.raises(BadRequestError, match="none of which can be indexed"):
            client.write([{"_id": "c/3"}])
    asyncio.run(_write_asynchronously(str(http.base_url)))


async def _write_asynchronously(url: str) -> None:
    async with AsyncGlowClient(url, api_key=KEY, timeout_s=60) as client:
        written = await client.write([{"_id": "a/1", "text": "an aardvark"}], wait_s=30)
        states = [written.state, (await client.operation(written.operation)).state]
        states.append((await client.delete(["a/1"], wait_s=30)).state)
    assert states == ["visible"] * 3
