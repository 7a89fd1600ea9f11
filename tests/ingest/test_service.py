"""Writes over real HTTP, to a service and a `glow ingest` beside it: what is answered, who may, and that searches lose nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.client import BadRequestError, GlowClient
from glow.ingest import INGEST_FOLDER, IngestState, merged, read_accepted
from glow_service.errors import RequestError
from glow_service.writes import read_patch
from tests.attacks.harness import serving
from tests.ingest.conftest import (
    KEY,
    KEY_HASH,
    WRITE,
    MakeRoot,
    log_bytes,
    root_in,
    serving_writes,
    start_ingest,
)
from tests.until import until


@pytest.fixture(scope="module")
def root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    return root_in(tmp_path_factory.mktemp("written"), toy_model, 30)


@pytest.fixture(scope="module")
def http(root: IndexRoot, toy_model: Path) -> Iterator[httpx.Client]:
    flags = ("--write-key", KEY_HASH, "--workers", "2", "--max-write-bytes", "65536")
    with (
        serving(root.path, *flags) as service,
        start_ingest(root, toy_model, "--poll-interval-s", "0.1") as ingest,
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
    patched = http.patch("/documents/alone?wait=visible", json={"a": {"b": None}, "price": 5}, headers=WRITE)
    assert (patched.json()["state"], patched.json()["counts"]["replaced"]) == ("visible", 1)
    cheap = http.post("/search", json={"query": "ocelot", "filter": {"price": {"lt": 6}}}).json()
    assert [(hit["id"], hit["metadata"]) for hit in cheap["hits"]] == [("alone", {"a": {}, "price": 5})]
    by_ids = http.post("/documents/delete?wait=visible", json={"ids": ["alone"]}, headers=WRITE)
    assert by_ids.status_code == 200
    assert http.get("/documents/alone").status_code == 404


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


def _until_visible(http: httpx.Client, operation: str) -> None:
    def state() -> str:
        found = http.get(f"/operations/{operation}", headers=WRITE).json()
        assert found["state"] in ("waiting", "applied", "visible"), found
        return str(found["state"])

    until(lambda: state() == "visible")


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


# RFC 7396, appendix A: the original, the patch, the result.
CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": "foo"}, "bar", "bar"),
    (["a", "b"], {"a": "b"}, {"a": "b"}),
]


@pytest.mark.parametrize(("value", "patch", "result"), CASES)
def test_a_patch_merges_as_the_standard_says(value: Any, patch: Any, result: Any) -> None:
    assert merged(value, patch) == result


RECORDED = {
    "id_field": "sku",
    "field_types": {"price": "number", "active": "boolean", "added": "date", "zip": "string"},
}


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"price": "12"}, ["/price"]),
        ({"price": [1, True]}, ["/price"]),
        ({"price": {"now": 1}}, ["/price"]),
        ({"active": 1, "added": "soon"}, ["/active", "/added"]),
        ({"zip": 135}, ["/zip"]),
        ({"sku": "b"}, ["/sku"]),
    ],
)
def test_a_patch_changes_neither_the_key_of_the_id_nor_the_type_of_a_column(
    changes: dict[str, Any], pointers: list[str]
) -> None:
    with pytest.raises(RequestError) as refused:
        read_patch("a", json.dumps(changes).encode(), ["title"], RECORDED)
    assert [each.pointer for each in refused.value.faults] == pointers


def test_a_patch_may_have_values_of_the_type_and_nulls_and_other_keys() -> None:
    changes = {"price": [1, 2.5], "active": False, "added": "2024-01-02", "zip": None, "color": 7}
    assert read_patch("a", json.dumps(changes).encode(), ["title"], RECORDED) == changes


def patch(http: httpx.Client, name: str, content: bytes, kind: str = "application/merge-patch+json") -> Any:
    return http.patch(f"/documents/{name}", content=content, headers={**WRITE, "Content-Type": kind})


def test_a_patch_is_logged_and_only_metadata_may_change(root_of: MakeRoot) -> None:
    root = root_of(3)
    with serving_writes(root) as http, GlowClient(str(http.base_url), api_key=KEY) as client:
        assert http.patch("/documents/d/0", json={"year": 1}).json()["code"] == "key_missing"
        for content, pointers, words in (
            (b'{"year": 1, "title": null}', ["/title"], "send the whole document to POST /documents"),
            (b'{"_id": "e", "text": "x"}', ["/text", "/_id"], "an id cannot change"),
            (b"[1]", [""], "expected a document"),
            (b'{"a": ' + b'{"a":' * 70 + b"1" + b"}" * 71, [""], "nested too deep"),
            (b'{"a": 1e999}', [""], "out of range"),
            (b'{"a": "\xff"}', [""], "UTF-8"),
        ):
            answer = patch(http, "d/0", content)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), content
            assert [each["pointer"] for each in answer.json()["errors"]] == pointers
            assert words in answer.json()["detail"]
        assert patch(http, "d/0", b'{"a": ').json()["code"] == "malformed_json"
        assert patch(http, "d/0", b"{}", "text/plain").json()["code"] == "unsupported_media_type"
        assert log_bytes(root) == 0

        sent = patch(http, "d/0", b'{"year": 1, "place": {"city": "Bern", "zip": null}}')
        assert (sent.status_code, sent.json()["state"]) == (202, "waiting")
        assert client.patch("d/1 ü", {"open": None}).state == "waiting"
    logged = [each.operation for each in read_accepted(root.path / INGEST_FOLDER, IngestState())]
    assert [(each.kind, each.id, each.metadata) for each in logged if each is not None] == [
        ("patch", "d/0", {"year": 1, "place": {"city": "Bern", "zip": None}}),
        ("patch", "d/1 ü", {"open": None}),
    ]
