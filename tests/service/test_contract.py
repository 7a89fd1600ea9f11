"""The contract: any request gets a response that the OpenAPI document promises, with members in a fixed order.

`wire.json` has the members of every response, in the order in which they are sent; `RECORD=1 pytest` of this file writes
it anew. A difference is a change for clients, and belongs in the changelog.
"""

import json
import os
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CHECKS

from glow.client import PagedOptions, SearchOptions
from glow.contract import Problem
from glow.errors import GlowError
from glow_service.access import access_errors
from glow_service.api.problems import problem_of
from glow_service.api.routes import ROUTES
from glow_service.search.request import SearchRequest
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
    for path in route.paths[-1:]  # the same route, by a longer name
    for mode in schemathesis.GenerationMode
    if route.method == "POST" or mode is schemathesis.GenerationMode.POSITIVE  # no path is a bad one
]
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=15)


@pytest.fixture(scope="module")
def api(http: httpx.Client) -> Any:
    return schemathesis.openapi.from_url(str(http.base_url.join("/openapi.json")))


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


def test_the_last_of_a_key_that_comes_twice_counts(http: httpx.Client) -> None:
    body = b'{"query": "salmon", "top_k": 3, "query": "bees", "top_k": 1}'
    found = http.post("/search", content=body, headers=JSON).json()
    assert found["query"]["text"] == "bees" and len(found["hits"]) == 1


# The OpenAPI document promises what the routes do: statuses, keys, examples that are answered.


def test_openapi_promises_what_the_table_says(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    for route in ROUTES:
        for path in route.paths:
            operation = document["paths"][path.replace(":path", "")][route.method.lower()]
            promised = {status for status in operation["responses"] if status != "200"}
            kinds = (*route.errors, *access_errors(path, route.method), GlowError)
            assert promised == {str(problem_of(kind).status) for kind in kinds}
    assert _references(document) <= set(document["components"]["schemas"])
    operations = [value["operationId"] for path in document["paths"].values() for value in path.values()]
    assert len(set(operations)) == len(operations)


def test_openapi_has_groups_keys_and_bodies_that_are_answered(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    groups = {tag["name"] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert set(operation["tags"]) <= groups
            schemes = {name for choice in operation["security"] for name in choice}
            known = set(document["components"]["securitySchemes"])
            assert schemes == (known if operation["security"] else set())
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if "example" in body:
                # Writing and feedback are off here: tests/ingest and test_feedback.py have them on.
                wanted = 404 if any(name in path for name in ("/documents", "/feedback", "/explain")) else 200
                response = http.request(method, path, json=body["example"])
                kind = "application/json" if wanted == 200 else "application/problem+json"
                assert (response.status_code, response.headers["content-type"]) == (wanted, kind), path
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert {} in document["paths"]["/search"]["post"]["security"]
    assert {} not in document["paths"]["/admin/reload"]["post"]["security"]


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {name for item in value for name in _references(item)}
    if isinstance(value, dict):
        own = {value["$ref"].rsplit("/", 1)[1]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(item) for item in value.values()))
    return set()


GOLDEN = Path(__file__).parent / "wire.json"
BEES: dict[str, Any] = {"query": "how do bees find home", "top_k": 2}
WHOLE = {**BEES, "highlight": True, "explain": {"leave_one_out": True}, "vectors": True}
ASKED: dict[str, tuple[str, str, Any]] = {
    "search": ("POST", "/search", BEES),
    "search, everything": ("POST", "/search", WHOLE),
    "search by words": ("POST", "/search", {**WHOLE, "retriever": "lexical"}),
    "search, facets": ("POST", "/search", {**BEES, "facets": [{"field": "lang"}]}),
    "search, typo": ("POST", "/search", {"query": "how do slamon swim zzzz", "top_k": 1}),
    "search, refused": ("POST", "/search", {"query": "bees", "top_k": 0}),
    "search, prefix": ("POST", "/search", {"query": "salm", "prefix": True, "top_k": 1}),
    "suggestions": ("GET", "/suggest?q=sal", None),
    "explain": ("POST", "/explain", {"id": "toy/0", **BEES, "filter": {"lang": "zz"}}),
    "batch": ("POST", "/search/batch", {"searches": [BEES, {"query": " "}]}),
    "document": ("GET", "/documents/toy/0", None),
    "document, missing": ("GET", "/documents/nope", None),
    "documents": ("GET", '/documents?limit=2&filter={"lang":"en"}', None),
    "vectors": ("POST", "/v1/embeddings", {"input": ["bees"], "input_type": "query"}),
    "models": ("GET", "/v1/models", None),
    "info": ("GET", "/info", None),
    "ready": ("GET", "/readyz", None),
    "health": ("GET", "/healthz", None),
    "problem": ("GET", "/problems/invalid_request", None),
    "feedback, off": ("POST", "/feedback", {}),
    "write, off": ("POST", "/documents", {"_id": "a"}),
    "patch, off": ("PATCH", "/documents/a", {"year": 1}),
}
OPEN = ("settings", "timings_ms", "columns")
"""Objects whose members depend on the machine or the index."""


def shape(value: Any, name: str = "") -> Any:
    """The members of objects in order, with the types of their values; a list shows the shapes of its items."""
    if isinstance(value, dict) and name not in OPEN:
        return {key: shape(each, key) for key, each in value.items()}
    if isinstance(value, list):
        shapes = [shape(each) for each in value]
        return [each for place, each in enumerate(shapes) if each not in shapes[:place]]
    return type(value).__name__


def test_every_response_has_its_members_in_their_order(http: httpx.Client) -> None:
    found = {}
    for name, (method, path, body) in ASKED.items():
        response = http.request(method, path, json=body)
        found[name] = {"status": response.status_code, "body": shape(response.json())}
    if os.environ.get("RECORD"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wanted = json.loads(GOLDEN.read_bytes())
    for name, each in found.items():
        assert json.dumps(each) == json.dumps(wanted[name]), name
    assert found.keys() == wanted.keys()


def test_the_clients_options_are_the_members_of_a_search() -> None:
    options = get_type_hints(SearchOptions)
    assert options.keys() | {"query"} == SearchRequest.model_fields.keys()
    assert get_type_hints(PagedOptions).keys() | {"top_k"} == options.keys()
    for name in ("retriever", "typos"):
        assert _texts(options[name]) == _texts(SearchRequest.model_fields[name].annotation), name


def _texts(annotation: Any) -> set[str]:
    """The texts of its literals."""
    parts = get_args(annotation)
    return {part for part in parts if isinstance(part, str)}.union(*map(_texts, parts))
