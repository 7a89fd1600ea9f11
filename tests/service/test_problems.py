"""Errors over real HTTP: every request fault has a status, a stable code and a reason; none crashes the service."""

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from glow.errors import GlowError
from glow_service import errors as service_errors
from glow_service.api.problems import PROBLEMS, problem_of
from glow_service.api.routes import ROUTES
from tests.service.asking import Serve, assert_problem

JSON = {"Content-Type": "application/json"}
MALFORMED = (
    *(b"", b"{", b"query=bees", b'{"query":' + b"[" * 5_000 + b"]" * 5_000 + b"}", b"[" * 30_000),
    *(
        b'{"query": "\xff\xfe"}',
        b'{"query": "be\nes"}',
        b'\xef\xbb\xbf{"query": "bees"}',
        '{"query": "bees"}'.encode("utf-16"),
    ),
    *(
        rb'{"query": "bees \udfff"}',
        rb'{"query": "bees", "\ud800": 1}',
        b'{"query": NaN}',
        b'{"query": 1e999}',
    ),
)
# Members beside a query, and the JSON pointers to what is at fault.
INVALID: list[tuple[dict[str, Any], str]] = [
    *(({"top_k": value}, "/top_k") for value in ("3", True, 2.5, 0, 101, 10**26)),
    *(({"offset": value}, "/offset") for value in (-1, 99_995)),
    *(({"retriever": "dense", "candidates": value}, "/candidates") for value in (0, 9, 1001)),
    *(({"timeout_ms": value}, "/timeout_ms") for value in (0, 30_001)),
    ({"fields": ["title", "nope"]}, "/fields/1"),
    ({"params": {"ef_search": 0, "bool": 1}}, "/params/ef_search /params/bool"),
    ({"retriever": "magic"}, "/retriever"),
    ({"limit": 5}, "/limit"),
    ({"retriever": "dense", "fusion": {"method": "rrf"}}, "/fusion"),
    ({"retriever": "hybrid", "fusion": {"weights": {"dense": 0}}}, "/fusion"),
    ({"retriever": "hybrid", "fusion": {"k": -1}}, "/fusion/k"),
    ({"fusion": {"weights": {"x": 1.0}}}, "/fusion/weights/x"),
    ({"filter": []}, "/filter"),
    ({"facets": [{"field": "lang"}, {"limit": 3}]}, "/facets/1/field"),
    ({"facets": [{"field": "lang", "limit": 101}]}, "/facets/0/limit"),
    ({"rerank": {"depth": 201}}, "/rerank/depth"),
    ({"rerank": {"method": "join"}}, "/rerank/method"),
    ({"highlight": 3}, "/highlight"),
    ({"highlight": {"fields": ["nope"]}}, "/highlight/fields/0"),
    ({"highlight": {"fragments": 0}}, "/highlight/fragments"),
    ({"explain": {"leave_one_out": "yes", "more": 1}}, "/explain/leave_one_out /explain/more"),
    ({"query": 5, "top_k": "x", "a/b~c": 1}, "/query /top_k /a~1b~0c"),
    *(({"query": value}, "/query") for value in (None, ["bees"], {"text": "bees"})),
]
UNFIT: list[tuple[dict[str, Any], str, str]] = [
    *(({"query": text}, "invalid_query", "/query") for text in ("", " \n\u00a0", "be\0es", "\u200b\x01")),
    ({"query": "x" * 10_001}, "query_too_long", "/query"),
    ({"rerank": {"depth": 5}}, "not_available", "/rerank"),
    ({"filter": {"field": "nope", "eq": 1}}, "invalid_filter", "/filter/field"),
    ({"filter": {"field": "year", "eq": "2000"}}, "invalid_filter", "/filter/eq"),
    ({"filter": {"field": "_id", "gte": "a"}}, "invalid_filter", "/filter"),
    ({"filter": {"field": "_id", "in": "a"}}, "invalid_filter", "/filter/in"),
    ({"filter": {"field": "_id", "eq": 1.5}}, "invalid_filter", "/filter/eq"),
    ({"filter": {"and": [{"field": "lang", "eq": "en"}] * 1_000}}, "invalid_filter", "/filter/and/999"),
    ({"facets": [{"field": "nope"}]}, "invalid_filter", "/facets/0/field"),
]
# What is sent, the code that answers, and the JSON pointers to what is at fault.
BAD_BODIES: list[tuple[bytes, str, str | None]] = [
    *((body, "malformed_json", "") for body in MALFORMED),
    *((body, "invalid_request", "") for body in (b"[]", b'"bees"', b"null")),
    *((orjson.dumps({"query": "bees", **more}), code, at) for more, code, at in UNFIT),
    *((json.dumps({"query": "bees", **more}).encode(), "invalid_request", at) for more, at in INVALID),
    (b"{}", "invalid_request", "/query"),
    (b'{"like": {"id": "nobody"}}', "document_not_found", None),
]


@pytest.mark.parametrize(("body", "code", "pointers"), BAD_BODIES, ids=lambda value: repr(value)[:50])
def test_a_bad_body_is_refused_with_its_places(
    http: httpx.Client, body: bytes, code: str, pointers: str | None
) -> None:
    kind = next(kind for kind in PROBLEMS if kind.code == code)
    problem = assert_problem(http.post("/search", content=body, headers=JSON), problem_of(kind).status, code)
    assert pointers is None or {fault.pointer for fault in problem.errors} == set(pointers.split(" "))
    assert all(fault.detail for fault in problem.errors)


def test_many_faults_are_counted_and_long_values_are_not_written_out(http: httpx.Client) -> None:
    response = http.post("/search", json={"query": "bees", **{f"x{i}": i for i in range(90)}})
    assert len(assert_problem(response, 422, "invalid_request").errors) == 20
    assert len(response.content) < 10_000
    refused = http.post("/search", json={"query": ["x" * 1_000] * 50, "top_k": "y" * 5_000})
    faults = assert_problem(refused, 422, "invalid_request").errors
    assert len(faults) == 2 and all(len(fault.detail) < 200 for fault in faults)


@pytest.mark.parametrize("path", ["/search", "/search/batch", "/v1/embeddings"])
def test_a_body_not_declared_as_json_is_a_415(http: httpx.Client, path: str) -> None:
    declared = ("", "text/plain", "json", "application/json; charset=latin-1")
    for headers in ({}, {**JSON, "Content-Encoding": "gzip"}, *({"Content-Type": each} for each in declared)):
        response = http.post(path, content=b'{"query": "bees"}', headers=headers)
        assert_problem(response, 415, "unsupported_media_type")
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert http.post(path, content=b"{}", headers=headers).status_code == 422


def test_a_connection_ends_with_an_answer_if_the_client_may_not_send_its_body(http: httpx.Client) -> None:
    for more, told in (({}, None), ({"Expect": "100-continue"}, "close")):
        response = http.post("/search", content=b"{}", headers={**JSON, **more})
        assert (response.status_code, response.headers.get("connection")) == (422, told)


def test_a_body_without_declared_length_is_cut_off_while_it_streams(http: httpx.Client) -> None:
    endless = (b" " * (1 << 16) for _ in range(400))
    with (
        httpx.Client(base_url=http.base_url) as client,
        suppress(httpx.WriteError),
    ):  # the answer may overtake
        assert_problem(client.post("/search", content=endless, headers=JSON), 413, "body_too_large")
    assert http.get("/healthz").status_code == 200


def test_the_limit_itself_is_accepted(http: httpx.Client) -> None:
    body = b'{"query": "bees"}'
    assert http.post("/search", content=body.ljust(65_536), headers=JSON).status_code == 200
    assert_problem(http.post("/search", content=body.ljust(65_537), headers=JSON), 413, "body_too_large")
    assert_problem(http.post("/v1/embeddings", json={"input": "x" * 5_000_000}), 413, "body_too_large")


def test_a_declared_length_that_is_too_large_is_refused_before_the_body_comes(http: httpx.Client) -> None:
    head = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900000000\r\n\r\n"
    with socket.create_connection((http.base_url.host, http.base_url.port or 80), timeout=10) as connection:
        connection.sendall(head)
        assert b" 413 " in connection.recv(4096)


def test_an_unknown_path_is_a_404_and_a_wrong_method_a_405_that_names_the_right_one(
    http: httpx.Client,
) -> None:
    for path in "/nope /search/ /v2/search /static/../settings.py /%00 /info%0A /static/app.js%0A".split():
        assert_problem(http.get(path), 404, "not_found")
    for method, path, allowed in (("PUT", "/search", "POST"), ("DELETE", "/info", "GET")):
        response = http.request(method, path)
        assert allowed in assert_problem(response, 405, "method_not_allowed").detail
        assert response.headers["allow"] == allowed


def test_a_well_formed_request_id_is_echoed_and_another_replaced(http: httpx.Client) -> None:
    given = "01J9Z.x_y:z/1+2=@"
    response = http.post("/search", json={"query": "bees"}, headers={"X-Request-ID": given})
    assert response.headers["x-request-id"] == response.json()["request_id"] == given
    for wrong in ("", "a b", "<script>", "x" * 129, "é".encode()):
        identifier = http.get("/healthz", headers={"X-Request-ID": wrong}).headers["x-request-id"]
        assert identifier != wrong and len(identifier) == 16


def test_before_the_index_is_loaded_only_health_is_well(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path, wait=False) as client:
        assert client.get("/healthz").json() == {"status": "alive"}
        answers = [client.get(path) for path in ("/readyz", "/info", "/documents/toy/0", "/search?q=bees")]
        for answer in answers:
            assert_problem(answer, 503, "not_ready")
            assert int(answer.headers["retry-after"]) > 0


def _is_answered(kind: type[GlowError]) -> bool:
    package, _, rest = kind.__module__.partition(".")
    return package in ("glow", "glow_service") and not (rest.startswith("client") or kind.__name__[0] == "_")


def test_every_error_has_a_code_of_its_own_and_a_status() -> None:
    # The client's errors come from responses and are never sent as one; nor are those of other packages.
    kinds = [GlowError, *(kind for kind in _below(GlowError) if _is_answered(kind))]
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
    met |= {"answer_too_large"}  # tests/service/test_search.py
    assert {kind.code for kind in route.errors} == met


def _below(kind: type[GlowError]) -> list[type[GlowError]]:
    return [found for child in kind.__subclasses__() for found in (child, *_below(child))]


# What costs much to refuse is refused before it is looked at: other requests go on meanwhile.

MANY = {f"m{number}": 1 for number in range(300_000)}


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
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    content = orjson.dumps(body)
    began_s = time.process_time()
    refused = http.post(path, content=content, headers=JSON)
    took_s = time.process_time() - began_s  # of the service, which is in this process, and of the client
    assert "at most" in assert_problem(refused, 422, "invalid_request").detail
    assert took_s < 0.5, "checking each member took 2 s"
