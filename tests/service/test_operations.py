"""Health, readiness, metrics, information and logs of a real server."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from glow import __version__
from glow.index import Index
from glow.index.vectors import VECTORS
from tests.until import until


def samples(http: httpx.Client) -> dict[str, float]:
    lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_health_and_readiness_are_well(http: httpx.Client, index: Index) -> None:
    assert http.get("/healthz").json() == {"status": "alive"}
    ready = http.get("/readyz")
    assert ready.json() == {
        "status": "ready",
        "index": {"version": index.version, "model": index.model},
        "workers": {"ready": 1, "desired": 1},
    }
    assert ready.headers["x-index-version"] == index.version


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/info", "/"])
def test_head_answers_as_get_without_a_body(http: httpx.Client, path: str) -> None:
    response = http.head(path)
    assert response.status_code == 200
    assert response.content == b""


def test_info_tells_what_runs(http: httpx.Client, index: Index) -> None:
    info = http.get("/info").json()
    assert info["version"] == __version__
    assert info["index"]["documents"] == len(index[VECTORS])
    assert info["index"]["hashes"] == index.manifest.hashes
    assert info["providers"] == ["CPUExecutionProvider"]
    assert info["retrievers"] == ["dense", "lexical", "hybrid"]
    assert [field["name"] for field in info["fields"]] == list(index.preprocessor.schema.names)
    assert info["settings"]["max_body_bytes"] == 65_536
    assert "index_root" not in info["settings"]


def test_metrics_count_requests_by_route_and_status(http: httpx.Client) -> None:
    before = samples(http)
    http.post("/search", json={"query": "bees " * 90})
    http.post("/search", json={"query": ""})
    http.get("/documents/toy/0")
    http.get("/documents/no/such")
    http.get("/nowhere/at/all")
    after = samples(http)

    def rise(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert rise('glow_requests_total{route="/search",status="200"}') == 1
    assert rise('glow_requests_total{route="/search",status="422"}') == 1
    assert rise('glow_requests_total{route="/documents/{id}",status="200"}') == 1
    assert rise('glow_requests_total{route="/documents/{id}",status="404"}') == 1
    assert rise('glow_requests_total{route="unmatched",status="404"}') == 1
    assert rise('glow_request_seconds_count{route="/search"}') == 2
    assert rise('glow_truncated_total{field="query"}') == 1
    for stage in ("queue", "preprocess", "encode", "search", "fetch"):
        assert rise(f'glow_stage_seconds_count{{stage="{stage}"}}') == 1


def test_metrics_name_the_index(http: httpx.Client, index: Index) -> None:
    found = samples(http)
    assert found[f'glow_index_info{{model="{index.model}",version="{index.version}"}}'] == 1
    assert found["glow_index_documents"] == len(index[VECTORS])
    assert found["glow_ready"] == 1
    assert found["glow_requests_in_flight"] == 1  # the one that asks


def test_each_request_is_one_json_line_without_its_query(http: httpx.Client, server: Any) -> None:
    http.post("/search", json={"query": "bees confidential"}, headers={"X-Request-ID": "log-me-1"})
    http.post("/search", json={"query": ""}, headers={"X-Request-ID": "log-me-2"})
    until(lambda: "log-me-1" in server.logged() and "log-me-2" in server.logged())
    # A last line may be in the middle of being written.
    lines = [json.loads(line) for line in server.logged().rpartition("\n")[0].splitlines()]
    found = {line["request_id"]: line for line in lines if str(line.get("request_id")).startswith("log-me")}
    good, bad = found["log-me-1"], found["log-me-2"]
    assert (good["method"], good["route"], good["status"], good["level"]) == ("POST", "/search", 200, "info")
    assert good["took_ms"] > 0
    assert (bad["status"], bad["code"]) == (422, "invalid_query")
    assert "confidential" not in server.logged()


def test_openapi_is_served_and_its_page_is_ours(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["info"]["version"] == __version__
    assert {"/search", "/v1/search", "/documents/{id}", "/readyz"} <= set(document["paths"])
    assert http.get("/redoc").status_code == 404
    page = http.get("/docs")
    assert page.status_code == 200 and "http" not in page.text.lower().replace("http interface", "")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")


def test_a_client_that_leaves_in_the_middle_is_counted_and_leaves_nothing_behind(http: httpx.Client) -> None:
    name = 'glow_requests_total{route="/search",status="499"}'
    before = samples(http).get(name, 0)
    address = urlsplit(str(http.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(
            b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"
        )
        until(lambda: samples(http)["glow_requests_in_flight"] == 2)
    until(lambda: samples(http).get(name, 0) > before)
    assert samples(http)["glow_requests_in_flight"] == 1
