"""Access control in front of the real app, over real HTTP: keys, refusals, pages of other sites."""

import hashlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from fastapi import FastAPI
from starlette.responses import StreamingResponse
from typer.testing import CliRunner

from glow.errors import BuildError
from glow_service.access import cors_options, parse_origins
from glow_service.commands.serve import serve_command
from tests.service.asking import Serve, assert_problem, samples

KEY, ADMIN_KEY = "search-key-of-the-test", "admin-key-of-the-test"
HASHES = [hashlib.sha256(key.encode()).hexdigest() for key in (KEY, ADMIN_KEY)]
WITH_KEY = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def client(serve: Serve) -> Iterator[httpx.Client]:
    with serve(api_keys=f"tester:{HASHES[0]}", admin_key=HASHES[1]) as found:
        yield found


def test_a_search_needs_a_key_and_passes_with_one(client: httpx.Client) -> None:
    before = samples(client)
    missing = client.post("/search", json={"query": "bees"})
    assert_problem(missing, 401, "key_missing")
    assert missing.headers["www-authenticate"] == 'Bearer realm="glow"'
    for headers in (WITH_KEY, {"X-API-Key": KEY}):
        assert client.post("/v1/search", json={"query": "bees"}, headers=headers).status_code == 200
    refused = client.post("/search", json={"query": "bees"}, headers={"X-API-Key": "nonsense"})
    assert "nonsense" not in refused.text
    assert_problem(refused, 403, "key_refused")
    for name in ("key_missing", "key_refused"):
        counter = f'glow_rejected_total{{reason="{name}"}}'
        assert samples(client)[counter] == before[counter] + 1


def test_what_is_closed_tells_nothing_of_what_there_is(client: httpx.Client) -> None:
    for path in ("/info", "/documents/1", "/documents/nope", "/nope", "/search/"):
        assert_problem(client.get(path), 401, "key_missing")
    for method in ("GET", "DELETE", "OPTIONS", "HEAD"):
        assert client.request(method, "/search").status_code == 401
    assert_problem(client.get("/nope", headers=WITH_KEY), 404, "not_found")
    assert_problem(client.put("/search", headers=WITH_KEY), 405, "method_not_allowed")


def test_an_escaped_path_is_judged_as_the_router_sees_it(client: httpx.Client) -> None:
    assert_problem(client.get("/%69nfo"), 401, "key_missing")
    assert_problem(client.get("/%61dmin%2Freload"), 401, "key_missing")
    assert_problem(client.get("/problems/..%2Finfo"), 404, "not_found")
    assert_problem(client.get("/static/..%2finfo"), 404, "not_found")


def test_operations_and_the_page_stay_open(client: httpx.Client) -> None:
    operations = ("/healthz", "/readyz", "/metrics", "/problems/not_found")
    for path in (*operations, "/openapi.json", "/", "/static/app.js"):
        for headers in ({}, {"X-API-Key": "nonsense"}):
            assert client.get(path, headers=headers).status_code == 200, path


@pytest.mark.parametrize("value", [b"Bearer \xff\xfe", b"Bearer " + b"k" * 60_000])
def test_a_damaged_key_is_refused_over_the_wire(client: httpx.Client, value: bytes) -> None:
    headers = [(b"Authorization", value)]
    assert_problem(client.post("/search", json={"query": "bees"}, headers=headers), 403, "key_refused")


def test_different_keys_in_one_request_are_refused_and_the_same_twice_is_fine(client: httpx.Client) -> None:
    right, same = ("Authorization", f"Bearer {KEY}"), ("X-API-Key", KEY)
    for twice in ([right, same], [right, right]):
        assert client.post("/search", json={"query": "bees"}, headers=twice).status_code == 200
    for other in (("X-API-Key", "other"), ("X-API-Key", ADMIN_KEY), ("Authorization", "Bearer other")):
        for headers in ([right, other], [other, right]):
            refused = client.post("/search", json={"query": "bees"}, headers=headers)
            assert "several different keys" in assert_problem(refused, 403, "key_refused").detail


def test_a_refusal_does_not_wait_for_the_body(client: httpx.Client) -> None:
    head = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=5) as connection:
        connection.sendall(head + b"Content-Length: 60000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_too_many_requests_are_told_how_long_to_wait(serve: Serve) -> None:
    with serve(rate_limit=0.05, rate_burst=2) as client:
        assert [client.get("/documents/toy/0").status_code for _ in range(3)] == [200, 200, 429]
        response = client.post("/search", json={"query": "bees"})
        assert_problem(response, 429, "rate_limited")
        assert 18 <= int(response.headers["retry-after"]) <= 20
        assert 'glow_rejected_total{reason="rate_limited"} 2.0' in client.get("/metrics").text


def test_neither_keys_nor_hashes_are_logged_or_shown(serve: Serve, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    tried = "a-key-that-is-wrong"
    # A service of its own: it logs its first refusal at once, and the next ones together.
    with serve(api_keys=f"tester:{HASHES[0]}", admin_key=HASHES[1]) as client:
        answers = [
            client.post("/search", json={"query": "bees"}, headers=WITH_KEY),
            client.get("/info", headers={"X-API-Key": KEY}),
            client.get("/info", headers={"X-API-Key": tried}),
            client.get("/admin/reload", headers={"Authorization": f"Bearer {ADMIN_KEY}"}),
            client.get("/admin/reload", headers=WITH_KEY),
            client.get("/metrics"),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 403, 405, 403, 200]
    said = [answer.text + str(answer.headers) for answer in answers]
    records = [record for record in caplog.records if "httpcore" not in record.name]
    said += [record.getMessage() + str(vars(record)) for record in records]
    assert any("'key_refused'" in text for text in said)  # the log was looked at
    for secret in (KEY, ADMIN_KEY, tried, *HASHES):
        assert not [text for text in said if secret in text]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--api-keys", "tester:hunter2"], "api_keys: entry 1 of 1 has 7 characters"),
        (["--admin-key", "hunter2"], "admin_key: it has 7 characters"),
        (["--api-keys", f"hunter2-a:{HASHES[0]}", "--admin-key", HASHES[0]], "admin_key: it is also"),
        (["--cors-origins", "https://a.example/"], "cors_origins: found 'https://a.example/'"),
    ],
)
def test_a_malformed_setting_stops_the_start_and_is_not_shown(flags: list[str], message: str) -> None:
    app = typer.Typer(add_completion=False)
    app.command()(serve_command)
    done = CliRunner().invoke(app, ["--index-root", "x", *flags])
    assert done.exit_code == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not [secret for secret in ("hunter2", HASHES[0][:12]) if secret in done.stderr]


# ---- what a fault on our side tells


def provoke(app: FastAPI) -> None:
    """Routes that fail in the ways that could show the inside of the service."""

    async def crash(_: object) -> None:
        try:
            raise OSError(2, "a cause", "/etc/inside/cause")
        except OSError as error:
            raise RuntimeError("inside the service") from error

    async def ours(_: object) -> None:
        raise BuildError("inside the service: /etc/inside/build")

    async def half(_: object) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"half"
            raise RuntimeError("inside the service")

        return StreamingResponse(parts())

    for handler in (crash, ours, half):
        app.add_api_route(f"/healthz/{handler.__name__}", handler, response_model=None)


def test_a_fault_shows_no_trace_no_message_no_path_and_is_logged(
    toy_index: Path, make_app: Any, serve_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(toy_index)
    provoke(app)
    with serve_app(app) as client:
        for path, code in (("/healthz/crash", "internal"), ("/healthz/ours", BuildError.code)):
            response = client.get(path, headers={"Accept": "text/html", "X-Debug": "1"})
            problem = assert_problem(response, 500, code)
            assert problem.detail == "unexpected error; see the log entry with this request id"
            for word in ("Traceback", "inside", "Error(", ".py", "RuntimeError", "cause"):
                assert word not in response.text + str(response.headers)
            record = [record for record in caplog.records if record.message == "unexpected error"][-1]
            assert record.fields["request_id"] == problem.request_id  # type: ignore[attr-defined]  # the type is what is tested
            assert "inside the service" in str(record.exc_info)
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=5) as connection:
            connection.sendall(b"GET /healthz/half HTTP/1.1\r\nHost: x\r\n\r\n")
            received = b"".join(iter(lambda: connection.recv(4096), b""))
    assert b"half" in received and b"inside" not in received and b"Traceback" not in received


# Pages of other sites: which origins the setting takes, and what browsers get to see over real HTTP.

SITE = "https://app.example.org"
PREFLIGHT = {"Origin": SITE, "Access-Control-Request-Method": "POST"}
PREFLIGHT |= {"Access-Control-Request-Headers": "authorization,content-type"}


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        (" \n", ()),
        ("*", ("*",)),
        (f" {SITE} , http://localhost:3000,{SITE}", (SITE, "http://localhost:3000")),
        ("https://xn--bcher-kva.example", ("https://xn--bcher-kva.example",)),
        ("http://a:443,http://[::1]:5173", ("http://a:443", "http://[::1]:5173")),
    ],
)
def test_origins_are_taken_as_browsers_write_them(text: str, origins: tuple[str, ...]) -> None:
    assert parse_origins(text) == origins


@pytest.mark.parametrize(
    "text",
    [
        *("app.example.org", "https://", "https://app.example.org/", "null", ",", f"{SITE},*"),
        *("https://user@app.example.org", "https://APP.example.org", "https://*.example.org"),
        *(f"{SITE}:65536", f"{SITE}:443", "https://bücher.example", "https://a\r\nx: y", "http://[::1"),
    ],
)
def test_what_would_never_match_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"^cors_origins: "):
        cors_options(text)


@pytest.fixture(scope="module")
def cors_client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[httpx.Client]:
    """A service that needs a key and that one other origin may ask."""
    with serve(
        tmp_path_factory.mktemp("empty"), wait=False, cors_origins=SITE, api_keys="tester:" + "0" * 64
    ) as found:
        yield found


def test_a_preflight_passes_without_a_key(cors_client: httpx.Client) -> None:
    answer = cors_client.options("/search", headers=PREFLIGHT)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == SITE
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "x-api-key", "content-type", "x-request-id"} <= set(allowed)
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    assert "access-control-allow-credentials" not in answer.headers


def test_a_refusal_can_be_read_by_the_page_that_caused_it(cors_client: httpx.Client) -> None:
    answer = cors_client.post("/search", headers={"Origin": SITE})
    assert answer.status_code == 401 and answer.headers["access-control-allow-origin"] == SITE
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert set(exposed) == {"X-Request-ID", "Server-Timing", "X-Index-Version", "Retry-After"}
    assert answer.json()["code"] == "key_missing"
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", SITE + ".evil.example"])
def test_another_origin_gets_no_leave(cors_client: httpx.Client, origin: str) -> None:
    assert cors_client.options("/search", headers={**PREFLIGHT, "Origin": origin}).status_code == 400
    answer = cors_client.post("/search", headers={"Origin": origin})
    assert "access-control-allow-origin" not in answer.headers


def test_a_preflight_for_more_than_is_offered_is_refused(cors_client: httpx.Client) -> None:
    for more in ({"Access-Control-Request-Method": "DELETE"}, {"Access-Control-Request-Headers": "x-other"}):
        assert cors_client.options("/search", headers={**PREFLIGHT, **more}).status_code == 400
