"""The OpenAPI document promises what the routes do: statuses, keys, examples that are answered."""

from typing import Any

import httpx

from glow.errors import GlowError
from glow_service.access.control import access_errors
from glow_service.api.problems import problem_of
from glow_service.api.routes import ROUTES


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
            assert schemes == (
                set(document["components"]["securitySchemes"]) if operation["security"] else set()
            )
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if "example" in body:
                # Writing and feedback are off here: tests/ingest and test_feedback.py have them on.
                wanted = 404 if "/documents" in path or "/feedback" in path else 200
                assert http.request(method, path, json=body["example"]).status_code == wanted, path
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
