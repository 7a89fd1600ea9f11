"""Errors over real HTTP: every request fault has a status, a stable code and a reason; none crashes the service."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest
from fastapi import FastAPI

from glow.contract import Problem
from glow.errors import GlowError
from glow_service import errors as service_errors
from glow_service.api.problems import PROBLEMS, problem_of
from glow_service.api.routes import ROUTES
from tests.records import read_whole
from tests.service.asking import Serve, assert_problem

JSON = {"Content-Type": "application/json"}


MALFORMED = (
    *(b"", b"{", b"query=bees", b"{'query': 'bees'}", b'{"query":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    *(b'{"query": "\xff\xfe"}', b'{"query": "\xed\xa0\x80"}', b'\xef\xbb\xbf{"query": "bees"}'),
    *(rb'{"query": "\ud800"}', rb'{"query": "bees \udfff"}', rb'{"query": "bees", "\ud800": 1}'),
    *(b'{"query": "bees", "top_k": %b}' % number for number in (b"NaN", b"Infinity", b"1e999")),
)
NO_QUERIES = (
    b"{}",
    *(b'{"query": %b}' % value for value in (b"null", b"5", b'["bees"]', b'{"text": "bees"}')),
)
NO_TEXTS = (b"", rb" \n\t\u00a0", rb"\u0000", rb"be\u0000es", rb"\u200b\u0001")
# Members beside a query, by the place that is at fault.
INVALID: dict[str, tuple[bytes, ...]] = {
    "/top_k": tuple(b'"top_k": ' + value for value in (b'"3"', b"true", b"2.5", b"0", b"101", b"9" * 26)),
    "/offset": (b'"offset": -1', b'"offset": 995'),
    "/candidates": (b'"candidates": 9', b'"candidates": 1001'),
    "/fields": (b'"fields": "title"',),
    "/fields/1": (b'"fields": ["title", "nope"]',),
    "/params/ef_search": (b'"params": {"ef_search": 0}',),
    "/params/deep": (b'"params": {"nprobe": 1, "deep": 1}',),
    "/retriever": (b'"retriever": "magic"',),
    "/limit": (b'"limit": 5',),
    "/fusion": (
        b'"retriever": "dense", "fusion": {"method": "rrf"}',
        b'"retriever": "hybrid", "fusion": {"weights": {"dense": 0}}',
    ),
    "/fusion/k": (b'"retriever": "hybrid", "fusion": {"k": -1}',),
    "/filter": (b'"filter": []',),
    "/facets/0/limit": (b'"facets": [{"field": "lang", "limit": 101}]',),
    "/highlight/fields/0": (b'"highlight": {"fields": ["nope"]}',),
    "/timeout_ms": (b'"timeout_ms": 0', b'"timeout_ms": 30001'),
}
# What is sent, the code that answers, and the JSON pointers to what is at fault.
BAD_BODIES: list[tuple[bytes, str, list[str] | None]] = [
    *((body, "malformed_json", [""]) for body in MALFORMED),
    *((body, "invalid_request", [""]) for body in (b"[]", b'"bees"', b"null")),
    *((body, "invalid_request", ["/query"]) for body in NO_QUERIES),
    *((b'{"query": "%b"}' % text, "invalid_query", ["/query"]) for text in NO_TEXTS),
    (json.dumps({"query": "x" * 10_001}).encode(), "query_too_long", ["/query"]),
    (b'{"query": 5, "top_k": "x", "a/b~c": 1}', "invalid_request", ["/query", "/top_k", "/a~1b~0c"]),
    (b'{"query": "bees", "rerank": {"depth": 5}}', "not_available", ["/rerank"]),
    (b'{"query": "bees", "filter": {"field": "nope", "eq": 1}}', "invalid_filter", ["/filter/field"]),
    (b'{"query": "bees", "filter": {"field": "year", "eq": "2000"}}', "invalid_filter", ["/filter/eq"]),
    (b'{"query": "bees", "facets": [{"field": "nope"}]}', "invalid_filter", ["/facets/0/field"]),
    (b'{"query": "bees", "explain": {"deep": true}}', "invalid_request", None),
    (b'{"like": {"id": "nobody"}}', "document_not_found", None),
    *((b'{"query": "bees", %b}' % each, "invalid_request", [at]) for at in INVALID for each in INVALID[at]),
]


NESTED_FAULTS = [
    ({"highlight": {"fragments": 0}}, ["/highlight/fragments"]),
    ({"highlight": 3}, ["/highlight"]),
    ({"explain": {"leave_one_out": "yes"}}, ["/explain/leave_one_out"]),
    ({"explain": {"more": 1}}, ["/explain/more"]),
    ({"fusion": {"weights": {"x": 1.0}}}, ["/fusion/weights/x"]),
    ({"facets": [{"field": "lang"}, {"limit": 3}]}, ["/facets/1/field"]),
    ({"params": {"ef_search": 0, "bool": 1}}, ["/params/ef_search", "/params/bool"]),
]


@pytest.mark.parametrize(("more", "pointers"), NESTED_FAULTS, ids=lambda value: repr(value)[:50])
def test_pointers_lead_to_places_of_the_body(
    http: httpx.Client, more: dict[str, Any], pointers: list[str]
) -> None:
    problem = http.post("/search", json={"query": "bees", **more}).json()
    assert sorted(error["pointer"] for error in problem["errors"]) == sorted(pointers)


@pytest.mark.parametrize(("body", "code", "pointers"), BAD_BODIES, ids=lambda value: repr(value)[:50])
def test_a_bad_body_is_refused_with_its_places(
    http: httpx.Client, body: bytes, code: str, pointers: list[str] | None
) -> None:
    kind = next(kind for kind in PROBLEMS if kind.code == code)
    problem = assert_problem(http.post("/search", content=body, headers=JSON), problem_of(kind).status, code)
    assert pointers is None or [fault.pointer for fault in problem.errors] == pointers
    assert all(fault.detail for fault in problem.errors)


def test_an_unknown_field_name_is_answered_with_the_known_ones(http: httpx.Client) -> None:
    problem = http.post("/search", json={"query": "bees", "fields": ["body"]}).json()
    assert "title, anchor, clicked_queries, url, text" in problem["errors"][0]["detail"]


def test_many_faults_are_counted_not_listed(http: httpx.Client) -> None:
    response = http.post("/search", json={"query": "bees", **{f"x{i}": i for i in range(90)}})
    assert len(assert_problem(response, 422, "invalid_request").errors) == 20
    assert len(response.content) < 10_000


WRITTEN: dict[str, Callable[[int], bytes]] = {
    "raw": lambda byte: bytes([byte]),
    "code": lambda byte: rf"\u{byte:04x}".encode(),
    "json": lambda byte: json.dumps(chr(byte))[1:-1].encode(),
}


@pytest.mark.parametrize("before", [b"", b"bees "])
@pytest.mark.parametrize("how", WRITTEN)
def test_every_byte_as_a_query_gets_a_sane_answer(http: httpx.Client, how: str, before: bytes) -> None:
    found = set()
    for byte in range(256):
        content = b'{"query": "' + before + WRITTEN[how](byte) + b'"}'
        response = http.post("/search", content=content, headers=JSON)
        found.add(response.status_code)
        assert json.loads(response.content)["request_id"], byte
        if response.status_code != 200:
            read_whole(response.content, Problem)
    refusals = {422} if how != "raw" else {400} if before else {400, 422}
    assert found == {200, *refusals}


OTHER_TYPES = (
    *(None, "", "text/plain", "application/xml", "json", "application/x-www-form-urlencoded"),
    *("application/json; charset=latin-1", "multipart/form-data"),
)


@pytest.mark.parametrize("path", ["/search", "/search/batch", "/v1/embeddings"])
@pytest.mark.parametrize("declared", OTHER_TYPES)
def test_a_body_not_declared_as_json_is_a_415(http: httpx.Client, path: str, declared: str | None) -> None:
    headers = {} if declared is None else {"Content-Type": declared}
    response = http.post(path, content=b'{"query": "bees"}', headers=headers)
    assert_problem(response, 415, "unsupported_media_type")


def test_a_compressed_body_is_a_415(http: httpx.Client) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    assert_problem(http.post("/search", content=b"x", headers=headers), 415, "unsupported_media_type")


def test_a_charset_of_utf8_is_accepted(http: httpx.Client) -> None:
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert http.post("/search", content=b'{"query": "bees"}', headers=headers).status_code == 200


def test_a_body_without_declared_length_is_cut_off_while_it_streams(http: httpx.Client) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 200 << 20:
            sent += 1 << 16
            yield b" " * (1 << 16)

    with httpx.Client(base_url=http.base_url) as client:
        try:
            response = client.post("/search", content=endless(), headers=JSON)
        except httpx.WriteError:  # the answer may overtake the body
            response = None
    if response is not None:
        assert_problem(response, 413, "body_too_large")
    assert http.get("/healthz").status_code == 200


def test_the_limit_itself_is_accepted(http: httpx.Client) -> None:
    body = b'{"query": "bees"}'
    assert http.post("/search", content=body.ljust(65_536), headers=JSON).status_code == 200
    assert_problem(http.post("/search", content=body.ljust(65_537), headers=JSON), 413, "body_too_large")


def test_a_declared_length_that_is_too_large_is_refused_before_the_body_comes(http: httpx.Client) -> None:
    host, port = urlsplit(str(http.base_url)).netloc.split(":")
    head = f"POST /search HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 900000000\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        assert b" 413 " in connection.recv(4096)


@pytest.mark.parametrize(
    "path", ["/nope", "/search/", "/v2/search", "/static/../settings.py", "/redoc", "/%00"]
)
def test_an_unknown_path_is_a_404(http: httpx.Client, path: str) -> None:
    assert_problem(http.get(path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("GET", "/search", "POST"), ("DELETE", "/info", "GET")]
)
def test_a_wrong_method_is_a_405_that_names_the_right_one(
    http: httpx.Client, method: str, path: str, allowed: str
) -> None:
    response = http.request(method, path)
    assert allowed in assert_problem(response, 405, "method_not_allowed").detail
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("given", ["abc-123", "01J9Z.x_y:z/1+2=@"])
def test_a_well_formed_request_id_is_echoed(http: httpx.Client, given: str) -> None:
    response = http.post("/search", json={"query": "bees"}, headers={"X-Request-ID": given})
    assert response.headers["x-request-id"] == response.json()["request_id"] == given


@pytest.mark.parametrize("given", ["", "a b", "<script>", "x" * 129, "é".encode()])
def test_another_request_id_is_replaced(http: httpx.Client, given: str | bytes) -> None:
    identifier = http.get("/healthz", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert identifier.encode() != given and len(identifier) == 16


def test_an_unexpected_error_tells_its_request_id_and_nothing_else(
    toy_index: Path,
    make_app: Callable[[Path], FastAPI],
    serve_app: Callable[[FastAPI], AbstractContextManager[httpx.Client]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = make_app(toy_index)

    async def broken(_: object) -> None:
        raise ValueError("a secret in /home/someone")

    app.add_api_route("/broken", broken)
    with serve_app(app) as client:
        response = client.get("/broken")
    problem = assert_problem(response, 500, "internal")
    assert "secret" not in response.text
    record = next(record for record in caplog.records if record.message == "unexpected error")
    assert record.fields["request_id"] == problem.request_id  # type: ignore[attr-defined]  # the type is what is tested
    assert "a secret" in str(record.exc_info)


def test_before_the_index_is_loaded_only_health_is_well(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path, wait=False) as client:
        assert client.get("/healthz").json() == {"status": "alive"}
        for answer in (
            client.get("/readyz"),
            client.get("/info"),
            client.get("/documents/toy/0"),
            client.post("/search", json={"query": "bees"}),
        ):
            assert_problem(answer, 503, "not_ready")
            assert int(answer.headers["retry-after"]) > 0


def _is_answered(module: str) -> bool:
    room, _, rest = module.partition(".")
    return room in ("glow", "service") and not rest.startswith("client")


def test_every_error_has_a_code_of_its_own_and_a_status() -> None:
    # The client's errors come from responses and are never sent as one; nor are those of other packages.
    kinds = [GlowError, *(kind for kind in _below(GlowError) if _is_answered(kind.__module__))]
    codes = [kind.code for kind in kinds]  # type: ignore[attr-defined]  # the type is what is tested
    assert len(set(codes)) == len(codes)
    assert all(kind in PROBLEMS for kind in kinds)
    assert {kind.__module__ for kind in _below(service_errors.RequestError)} == {service_errors.__name__}


def test_every_code_answers_for_itself(http: httpx.Client) -> None:
    for kind, problem in PROBLEMS.items():
        found = http.get(f"/problems/{kind.code}").json()
        assert (found["status"], found["title"], found["code"]) == (problem.status, problem.title, kind.code)
        assert found["meaning"]
    assert_problem(http.get("/problems/nope"), 404, "not_found")


def test_every_error_that_search_promises_was_met_above() -> None:
    route = next(route for route in ROUTES if "/search" in route.paths)
    met = {code for _, code, _ in BAD_BODIES} | {"body_too_large", "unsupported_media_type", "not_ready"}
    met |= {"overloaded", "deadline"}  # tests/service/test_admission.py
    met |= {"answer_too_large"}  # tests/service/test_answer_size.py
    assert {kind.code for kind in route.errors} == met


def _below(kind: type[GlowError]) -> list[type[GlowError]]:
    return [found for child in kind.__subclasses__() for found in (child, *_below(child))]


# What costs much to refuse is refused before it is looked at: other requests go on meanwhile.

MANY = {f"m{number}": 1 for number in range(300_000)}


def cpu_seconds(pid: int) -> float:
    """What a process has worked so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/search", {"query": "bees", **{f"m{number}": 1 for number in range(3_000)}}),
        ("/search/batch", {"searches": [{"query": "bees", **MANY}]}),
        ("/search/batch", {"searches": [{"query": "bees", "fusion": {"weights": MANY}}]}),
        ("/search/batch", {"searches": [{"query": "bees", "highlight": [*range(600_000)]}]}),
        ("/v1/embeddings", {"input": [*range(600_000)]}),
    ],
)
def test_a_body_of_very_many_members_is_refused_at_once(
    server: Any, http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    content = orjson.dumps(body)
    begin = cpu_seconds(server.process.pid)
    refused = http.post(path, content=content, headers=JSON)
    took_s = cpu_seconds(server.process.pid) - begin
    assert refused.status_code == 422, refused.text
    assert "at most" in refused.json()["detail"]
    assert took_s < 0.5, "checking each member took 2 s"


def test_what_was_found_is_not_written_out_whole(http: httpx.Client) -> None:
    refused = http.post("/search", json={"query": ["x" * 1_000] * 50, "top_k": "y" * 5_000})
    assert refused.status_code == 422
    details = [fault["detail"] for fault in refused.json()["errors"]]
    assert len(details) == 2 and all(len(detail) < 200 for detail in details)
