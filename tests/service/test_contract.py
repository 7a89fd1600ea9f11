"""Fuzz: for any request to any route, the response is one that the OpenAPI document promises, never a 5xx of GLOW."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS

from glow.contract import Problem
from glow_service.api.routes import ROUTES
from tests.records import read_whole

SEMANTIC = {
    # Bodies of the right shape that cannot be served, by code: what JSON schema does not say.
    "invalid_query": "a query that is blank, or holds NUL or no word",
    "invalid_filter": "a filter or facet that the metadata of the index does not fit, or of too many terms",
    "query_too_long": "longer than max_query_chars",
    "invalid_request": "beyond a setting's bound (top_k, candidates, timeout_ms, batch sizes), an unknown field or model",
    "not_available": "what this index lacks",
    "overloaded": "a batch of more searches than there are permits",
}
JSON = {"Content-Type": "application/json"}
OPERATIONS = [
    (path.replace(":path", ""), route.method, mode)
    for route in ROUTES
    for path in route.paths
    for mode in schemathesis.GenerationMode
    if route.method == "POST" or mode is schemathesis.GenerationMode.POSITIVE  # no path is a bad one
]
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=25)


@pytest.fixture(scope="module")
def api(http: httpx.Client) -> Any:
    schema = schemathesis.openapi.from_url(str(http.base_url.join("/openapi.json")))
    return schema


def _excluded(status: int) -> list[Any]:
    # They are of the schema's shape alone; SEMANTIC lists what else a body can be refused for, and it is checked below.
    excluded = [CHECKS.get_one("positive_data_acceptance")]
    if status == 413:  # refused unread, which the check does not count among refusals
        excluded.append(CHECKS.get_one("negative_data_rejection"))
    return excluded


@pytest.mark.parametrize(
    ("path", "method", "mode"), OPERATIONS, ids=lambda value: getattr(value, "value", value)
)
def test_every_route_keeps_its_promises(api: Any, path: str, method: str, mode: Any) -> None:
    @QUIET
    @given(case=api[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        response = case.call()
        if response.status_code == 504 and response.json()["code"] == "deadline":
            return  # what a short timeout_ms asks for
        case.validate_response(response, excluded_checks=_excluded(response.status_code))
        assert response.status_code < 500
        if response.status_code in (422, 429):
            assert response.json()["code"] in SEMANTIC
        if response.status_code >= 400:
            read_whole(response.content, Problem)

    check()


def answers_sanely(response: httpx.Response, *statuses: int) -> None:
    assert response.status_code in (statuses or (200, 400, 422)), response.text
    if response.status_code != 200:
        read_whole(response.content, Problem)


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_as_a_query(http: httpx.Client, byte: int) -> None:
    raw = b'{"query": "bees ' + bytes([byte]) + b'"}'
    answers_sanely(http.post("/search", content=raw, headers=JSON))
    escaped = json.dumps({"query": chr(byte)})
    answers_sanely(http.post("/search", content=escaped, headers=JSON), 200, 422)


def _bodies() -> Iterator[tuple[str, bytes]]:
    yield "lone surrogate", b'{"query": "\\ud800 bees"}'
    yield "NUL", b'{"query": "bees\\u0000"}'
    yield "NaN", b'{"query": "bees", "top_k": NaN}'
    yield "Infinity", b'{"query": "bees", "top_k": Infinity}'
    yield "huge number", b'{"query": "bees", "top_k": 1e999}'
    yield "huge integer", b'{"query": "bees", "top_k": ' + b"9" * 5_000 + b"}"
    yield "negative zero", b'{"query": "bees", "offset": -0}'
    yield "deep", b"[" * 30_000
    yield "deep object", b'{"query":' * 5_000 + b"1" + b"}" * 5_000
    yield "byte-order mark", b'\xef\xbb\xbf{"query": "bees"}'
    yield "UTF-16", '{"query": "bees"}'.encode("utf-16")
    yield "empty", b""
    yield (
        "ten thousand filter terms",
        # Short ones, in a body that is small enough to be read.
        json.dumps(
            {"query": "bees", "filter": {"field": "lang", "in": ["a"] * 10_000}}, separators=(",", ":")
        ).encode(),
    )
    yield (
        "a thousand filter terms",
        json.dumps({"query": "bees", "filter": {"and": [{"field": "lang", "eq": "en"}] * 1_000}}).encode(),
    )


@pytest.mark.parametrize(
    ("name", "body"), list(_bodies()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_bodies_that_break_parsers(http: httpx.Client, name: str, body: bytes) -> None:
    answers_sanely(http.post("/search", content=body, headers=JSON))
    answers_sanely(
        http.post("/search/batch", content=b'{"searches": [' + body + b"]}", headers=JSON), 200, 400, 413, 422
    )


def test_the_last_of_a_key_that_comes_twice_counts(http: httpx.Client) -> None:
    body = b'{"query": "salmon", "top_k": 3, "query": "bees", "top_k": 1}'
    found = http.post("/search", content=body, headers=JSON).json()
    assert found["query"]["text"] == "bees"
    assert len(found["hits"]) == 1


def test_sizes_beyond_the_bounds(http: httpx.Client) -> None:
    answers_sanely(http.post("/search", json={"query": "x" * 1_000_000}), 413)
    many = {"query": "bees", "filter": {"and": [{"field": "lang", "eq": "en"}] * 10_000}}
    answers_sanely(http.post("/search", json=many), 413)
    answers_sanely(http.post("/search", json={"query": "bees " * 1_000}), 422)
    answers_sanely(http.post("/v1/embeddings", json={"input": "x" * 5_000_000}), 413)


@pytest.mark.parametrize("path", ["/search", "/search/batch", "/v1/embeddings"])
@pytest.mark.parametrize(
    "declared", ["text/plain", "", "application/xml", "application/json; charset=latin-1", "json"]
)
def test_another_content_type_is_a_415(http: httpx.Client, path: str, declared: str) -> None:
    response = http.post(path, content=b'{"query": "bees"}', headers={"Content-Type": declared})
    answers_sanely(response, 415)


@QUIET
@given(query=st.text(max_size=300))
def test_any_text_is_a_query_or_is_refused_with_a_reason(query: str, http: httpx.Client) -> None:
    try:
        body = json.dumps({"query": query}, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8; as an escape it is tried above
        body = json.dumps({"query": query}).encode()
    answers_sanely(http.post("/search", content=body, headers=JSON))


def test_the_list_of_semantic_refusals_is_documented() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "reference" / "errors.md").read_text(
        encoding="utf-8"
    )
    assert all(f"`{code}`" in page for code in SEMANTIC)
