"""Pages of other sites: which origins the setting takes, and what browsers get to see over real HTTP."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from glow_service.access.cors import cors_options, parse_origins
from glow_service.app import create_app
from glow_service.settings import Settings

SITE = "https://app.example.org"
PREFLIGHT = {
    "Origin": SITE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", ()),
        (" \n", ()),
        ("*", ("*",)),
        (SITE, (SITE,)),
        (f" {SITE} , http://localhost:3000,{SITE}", (SITE, "http://localhost:3000")),
        ("http://127.0.0.1:5173,http://[::1]:5173", ("http://127.0.0.1:5173", "http://[::1]:5173")),
        ("chrome-extension://abcdef,https://xn--bcher-kva.example", None),
        ("http://a:443,https://a:80,https://a:65535", None),
    ],
)
def test_origins_are_taken_as_browsers_write_them(text: str, origins: tuple[str, ...] | None) -> None:
    assert parse_origins(text) == (tuple(text.split(",")) if origins is None else origins)


@pytest.mark.parametrize(
    "text",
    [
        *("app.example.org", "//app.example.org", "https://", "https://app.example.org/", "null", ","),
        *("https://app.example.org/path", "https://app.example.org?x", "https://user@app.example.org"),
        *(
            "https://APP.example.org",
            "HTTPS://app.example.org",
            "https://*.example.org",
            "https://bücher.example",
        ),
        *(
            "https://app.example.org:",
            "https://app.example.org:0",
            "https://app.example.org:65536",
            "http://a b",
        ),
        *(
            "https://app.example.org:443",
            "http://app.example.org:80",
            "https://a,",
            f"{SITE},*",
            "*,*,https://a",
        ),
        *("https://a\r\nx: y", "https://a\n", "https://.a", "http://[::1"),
    ],
)
def test_what_would_never_match_is_refused_with_a_reason(text: str) -> None:
    if text == "https://a\n":  # white space around an entry is fine
        assert parse_origins(text) == ("https://a",)
        return
    with pytest.raises(ValueError, match=r"^cors_origins: "):
        cors_options(text)


def test_cors_is_off_where_no_origin_is_named() -> None:
    assert cors_options("") == {}


def test_cookies_are_never_let_through() -> None:
    assert cors_options(SITE)["allow_credentials"] is cors_options("*")["allow_credentials"] is False


@pytest.fixture
def client(
    tmp_path: Path, serve_app: Callable[..., AbstractContextManager[httpx.Client]]
) -> Iterator[httpx.Client]:
    """A service that needs a key and that one other origin may ask."""
    settings = Settings(index_root=tmp_path, cors_origins=SITE, api_keys="tester:" + "0" * 64)
    with serve_app(create_app(settings, on_failure=lambda: None), wait=False) as found:
        yield found


def test_a_preflight_passes_without_a_key(client: httpx.Client) -> None:
    answer = client.options("/search", headers=PREFLIGHT)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == SITE
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "x-api-key", "content-type", "x-request-id"} <= set(allowed)
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    assert "access-control-allow-credentials" not in answer.headers


def test_a_refusal_can_be_read_by_the_page_that_caused_it(client: httpx.Client) -> None:
    answer = client.post("/search", headers={"Origin": SITE})
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == SITE
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert set(exposed) == {"X-Request-ID", "Server-Timing", "X-Index-Version", "Retry-After"}
    assert answer.json()["code"] == "key_missing"
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", SITE + ".evil.example", "http://app.example.org"]
)
def test_another_origin_gets_no_leave(client: httpx.Client, origin: str) -> None:
    assert client.options("/search", headers={**PREFLIGHT, "Origin": origin}).status_code == 400
    answer = client.post("/search", headers={"Origin": origin})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "asked", [{"Access-Control-Request-Method": "DELETE"}, {"Access-Control-Request-Headers": "x-other"}]
)
def test_a_preflight_for_more_than_is_offered_is_refused(client: httpx.Client, asked: dict[str, str]) -> None:
    assert client.options("/search", headers={**PREFLIGHT, **asked}).status_code == 400
