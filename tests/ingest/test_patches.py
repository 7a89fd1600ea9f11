"""Patches: metadata of a document changes by a JSON merge patch."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.client import GlowClient
from glow.ingest import INGEST_FOLDER, IngestLog, IngestState, merged, read_accepted
from glow_service.errors import RequestError
from glow_service.writes import read_patch
from tests.ingest.conftest import MakeRoot
from tests.ingest.writing import KEY, WRITE, log_bytes, serving_writes

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


def test_the_log_keeps_the_nulls_of_a_patch(tmp_path: Path) -> None:
    log = IngestLog(tmp_path / INGEST_FOLDER, 1 << 20)
    log.append("patch", id="d/1", metadata={"price": 5, "stock": None})
    (found,) = read_accepted(tmp_path / INGEST_FOLDER, IngestState())
    assert found.operation is not None and found.operation.kind == "patch"
    assert (found.operation.id, found.operation.metadata) == ("d/1", {"price": 5, "stock": None})


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
