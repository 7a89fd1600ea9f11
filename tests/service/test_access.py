"""Access control: keys in settings, rate limits, which paths need which key, and what refusals and faults tell."""

import hashlib
import hmac
import logging
import math
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import StreamingResponse

from glow.errors import BuildError, GlowError
from glow_service import access, state
from glow_service.access import (
    ACCESS,
    Access,
    AccessControl,
    RateLimiter,
    access_errors,
    access_of,
    client_of,
    find_name,
    listed_access,
    parse_keys,
    parse_origins,
)
from glow_service.api.problems import problem_of
from glow_service.api.routes import PAGE_FILES, ROUTES
from glow_service.commands.serve import key_command, serve_command
from glow_service.errors import KeyMissingError, KeyRefusedError, RateLimitError
from glow_service.settings import Settings
from glow_service.state import client_limits
from glow_service.telemetry.metrics import Metrics
from tests.service.asking import Serve, assert_problem, invoke, samples, sha256

ONE, TWO = sha256("one"), sha256("two")
SECRET = "hunter2-Wq8"  # noqa: S105 - no password: what must not be shown


def test_entries_are_read_in_order_with_white_space_around_them() -> None:
    found = parse_keys(f" a:{ONE} ,\n b.c-d_E9 : {TWO.upper()} ")
    assert list(found.items()) == [("a", bytes.fromhex(ONE)), ("b.c-d_E9", bytes.fromhex(TWO))]
    assert parse_keys("") == parse_keys(" \n") == {}
    assert access.parse_key(f" {ONE}\n") == bytes.fromhex(ONE) and access.parse_key("") is None


@pytest.mark.parametrize(
    ("api_keys", "admin_key", "message"),
    [
        (f"a:{ONE},{SECRET}", "", "api_keys: entry 2 of 2 has no colon"),
        (f"a:{ONE[:-1]}g", "", "api_keys: entry 1 of 1 has 64 characters"),
        (f"{ONE}:{SECRET}", "", "entry 1 of 1 has 11 characters, expected the 64 hexadecimal digits"),
        (f"a:{ONE},", "", "entry 2 of 2 has no colon"),
        (f"{SECRET * 9}:{ONE}", "", "entry 1 of 1: the name has 99 characters"),
        (f"é:{ONE}", "", "entry 1 of 1: the name has 1 characters"),
        (f"admin:{ONE}", "", "not 'admin'"),
        (f"a:{ONE},a:{TWO}", "", "entry 2 of 2 repeats the name"),
        (f"a:{ONE},b:{TWO},c:{ONE}", "", "entry 3 of 3 repeats the name or the key"),
        ("", SECRET, "admin_key: it has 11 characters"),
        ("", f"admin:{ONE}", "admin_key: it has 70 characters"),
        (f"a:{TWO},b:{ONE}", ONE, "admin_key: it is also another setting's key"),
    ],
)
def test_a_malformed_key_ends_the_start_by_its_place_and_is_not_shown(
    api_keys: str, admin_key: str, message: str
) -> None:
    done = invoke(serve_command, "--index-root", "x", "--api-keys", api_keys, "--admin-key", admin_key)
    assert done.exit_code == 2 and message in done.stderr
    assert not [each for each in (SECRET, ONE[:12], "Traceback") if each in done.stderr]


def test_a_key_beyond_the_bound_is_refused_unread_even_if_its_hash_is_known() -> None:
    for size, name in ((access.MAX_KEY_BYTES, "a"), (access.MAX_KEY_BYTES + 1, None)):
        key = b"k" * size
        assert find_name(key, {"a": hashlib.sha256(key).digest()}) == name


def test_a_made_key_is_the_one_that_its_entry_or_setting_knows() -> None:
    done = invoke(key_command, "alice")
    assert (done.exit_code, done.stderr) == (0, "")
    _, key, _, entry = done.stdout.splitlines()
    assert len(key) == 43 and find_name(key.encode(), parse_keys(entry)) == "alice"
    assert invoke(key_command, "alice").stdout.splitlines()[1] != key
    for flag in ("--admin", "--write"):
        _, key, _, line = invoke(key_command, flag).stdout.splitlines()
        assert line == f"GLOW_{flag[2:].upper()}_KEY={sha256(key)}"


@pytest.mark.parametrize("arguments", [[], ["alice", "--admin"], ["al ice"], ["admin"]])
def test_a_wrong_call_is_a_usage_error_and_makes_no_key(arguments: list[str]) -> None:
    done = invoke(key_command, *arguments)
    assert (done.exit_code, done.stdout) == (2, "") and "rror" in done.stderr


# Token buckets, on a clock of the test's own.


@given(
    rate=st.floats(0.001, 1_000),
    burst=st.integers(1, 5),
    start=st.floats(0, 1e6),
    pauses=st.lists(st.floats(0, 2), max_size=40),
    is_patient=st.booleans(),
)
def test_burst_and_rate_are_let_in_and_whoever_waits_as_told(
    rate: float, burst: int, start: float, pauses: list[float], is_patient: bool
) -> None:
    clock, passed = SimpleNamespace(now=start), 0
    limiter = RateLimiter(rate, burst, max_clients=10, clock=lambda: clock.now)
    for pause in pauses:  # in tokens that come back meanwhile
        clock.now += pause / rate
        wait_s = limiter.take("a")
        passed += wait_s == 0
        if wait_s and is_patient:
            clock.now += wait_s
            assert limiter.take("a") == 0
            passed += 1
    assert passed <= math.floor(burst + (clock.now - start) * rate + 1e-3)


def test_a_price_beyond_the_burst_is_paid_on_credit_and_who_owes_cannot_spend_more() -> None:
    clock = SimpleNamespace(now=0.0)
    limiter = RateLimiter(rate=2.0, burst=10, max_clients=10, clock=lambda: clock.now)
    assert limiter.take("a") == limiter.take("a") == 0  # two requests whose bodies are on their way
    assert limiter.charge("a", 29) == 0 and limiter.charge("a", 5) == 11  # and its first token comes back
    assert limiter.take("a") == 11  # 20 owed, and 1 to begin with, at 2 a second
    assert limiter.take("b") == 0
    clock.now += 10.0
    assert limiter.take("a") == 1
    clock.now += 0.5
    assert limiter.take("a") == 0


def test_the_client_that_was_idle_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_CLIENTS", 3)
    limits = client_limits(Settings(index_root=Path(), rate_limit=0.001, rate_burst=1))
    assert limits.requests is not None
    for client in "abc":
        limits.requests.take(client)
    assert limits.requests.take("a") > 0  # a is in use again, so b is now the idlest
    assert limits.requests.take("d") == 0
    assert [limits.requests.take(client) > 0 for client in "acd"] == [True, True, True]
    assert limits.requests.take("b") == 0
    for client in "abcd":
        limits.feedback.take(client)
    assert len(limits.requests) == len(limits.feedback) == 3


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2::9", "20010db800010002::/64"),
        ("fe80::1%eth0", "fe80000000000000::/64"),
        ("not:an\0address", "not:an\0address"),
        ("x" * 60_000, "x" * 64),
        (":" * 60_000, ":" * 64),
    ],
)
def test_who_counts_as_one_client(host: str, client: str) -> None:
    assert client_of(host) == client


# Which paths need which key, what counts as a key, and that looking at one tells nothing.

KEYS = {"alice": b"alice-key", "bob": b"bob-key", "carol": b"carol-key"}
API_KEYS = ",".join(f"{name}:{sha256(key.decode())}" for name, key in KEYS.items())
ADMIN_KEY = b"admin-key"


def make_access(rate_limit: float = 0.0, **values: Any) -> AccessControl:
    limits = client_limits(Settings(index_root=Path(), rate_limit=rate_limit, rate_burst=1))
    return AccessControl(Metrics(), limiter=limits.requests, **values)


@pytest.fixture
def control() -> AccessControl:
    return make_access(api_keys=API_KEYS, admin_key=sha256("admin-key"))


def scope(path: str = "/search", *headers: tuple[bytes, bytes], client: Any = ("10.0.0.1", 5)) -> Any:
    method = "GET" if "/documents/" in path else "POST"  # whoever only reads
    return {"type": "http", "method": method, "path": path, "headers": list(headers), "client": client}


def bearer(key: bytes) -> tuple[bytes, bytes]:
    return (b"authorization", b"Bearer " + key)


def test_every_route_and_page_file_is_in_the_table_and_few_are_open() -> None:
    paths = [path for route in ROUTES for path in route.paths]
    paths = [path.replace("{id:path}", "x/y").replace("{code}", "x") for path in paths]
    missing = [path for path in [*paths, *PAGE_FILES] if listed_access(path) is None]
    assert not missing, f"say in service/access.py who may ask for {missing}"
    assert listed_access("/new-route") is None and access_of("/new-route") is Access.KEY
    page = {"/", "/docs", "/static/*", "/openapi.json"}
    is_open = {path for path, kind in ACCESS.items() if kind is Access.OPEN}
    assert is_open == page | {"/healthz", "/readyz", "/metrics", "/problems/*"}
    for path, statuses in (("/search", {401, 403, 429}), ("/admin/reload", {401, 403, 404}), ("/", set())):
        assert {problem_of(kind).status for kind in access_errors(path)} == statuses


CLOSED = (
    "/search /v1/search/batch /v1/embeddings /info /v1/documents/a/b /documents/ /nope /search/ //search * "
    "/healthz/ /static /readyz/x /HEALTHZ /metrics\0 /../search"
).split(" ")


def test_what_is_not_open_needs_one_of_the_keys(control: AccessControl) -> None:
    for path in (*CLOSED, ""):
        with pytest.raises(KeyMissingError):
            control.check(scope(path))
        with pytest.raises(KeyRefusedError):
            control.check(scope(path, bearer(ADMIN_KEY)))
        for name, key in KEYS.items():
            assert control.check(scope(path, bearer(key))) == name
    keyless = make_access(admin_key=sha256("admin-key"))
    assert keyless.check(scope()) == keyless.check(scope("/search", bearer(b"whatever"))) == ""
    with pytest.raises(KeyMissingError):
        keyless.check(scope("/admin/reload"))


def test_a_key_comes_in_either_header_and_a_proxys_own_authorization_is_none(control: AccessControl) -> None:
    for value in (b"bearer alice-key", b"BEARER \t alice-key  "):
        assert control.check(scope("/search", (b"authorization", value))) == "alice"
    for value in (b"", b"Bearer\t", b"alice-key", b"Basic YWxpY2U6eA==", b"Beareralice-key"):
        with pytest.raises(KeyMissingError):
            control.check(scope("/search", (b"authorization", value), (b"x-api-key", b"")))
        headers = ((b"authorization", value), (b"x-api-key", b"  bob-key\t"))
        assert control.check(scope("/search", *headers)) == "bob"


def test_what_is_near_a_key_is_refused_and_not_shown(control: AccessControl) -> None:
    hashes = (sha256("alice-key").encode(), hashlib.sha256(b"alice-key").digest())
    for key in (b"alice-key,bob-key", b"Alice-key", b"alice-ke", b"alice-key\0", b"a" * 65_000, *hashes):
        for header in (bearer(key), (b"x-api-key", key)):
            with pytest.raises(KeyRefusedError) as caught:
                control.check(scope("/search", header))
            assert repr(key)[2:12] not in str(caught.value)


@pytest.mark.parametrize("key", [*KEYS.values(), b"nonsense"])
def test_every_digest_is_compared_whichever_key_came(
    control: AccessControl, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []

    def compare(given: bytes, stored: bytes) -> bool:
        compared.append(stored)
        return hmac.compare_digest(given, stored)

    monkeypatch.setattr(access, "hmac", SimpleNamespace(compare_digest=compare))
    try:
        control.check(scope("/search", (b"x-api-key", key)))
    except GlowError:
        pass
    assert compared == [hashlib.sha256(stored).digest() for stored in KEYS.values()]


def test_settings_show_neither_keys_nor_hashes(tmp_path: Path) -> None:
    settings = Settings(index_root=tmp_path, api_keys=API_KEYS, admin_key=ONE)
    shown = f"{settings!r} {settings} {settings.public()} {settings.model_dump_json()}"
    assert not [secret for secret in ("alice", ONE, *API_KEYS.split(",")) if secret in shown]
    assert str(tmp_path) not in str(settings.public())


def test_each_key_and_without_keys_each_address_has_a_rate_of_its_own() -> None:
    def check(control: AccessControl, address: Any, *headers: tuple[bytes, bytes]) -> str:
        return control.check(scope("/search", *headers, client=address))

    keyed, open_to_all = (make_access(api_keys=keys, rate_limit=0.25) for keys in (API_KEYS, ""))
    for _ in range(5):  # open paths and refused keys use nothing up
        keyed.check(scope("/healthz", bearer(b"alice-key")))
        with pytest.raises(KeyRefusedError):
            keyed.check(scope("/search", bearer(b"alice-kez")))
    check(keyed, ("10.0.0.1", 1), bearer(b"alice-key"))
    with pytest.raises(RateLimitError) as caught:
        check(keyed, ("10.0.0.2", 1), bearer(b"alice-key"))
    assert caught.value.retry_after_s == 4
    assert check(keyed, ("10.0.0.1", 1), bearer(b"bob-key")) == "bob"
    for address in (("10.0.0.1", 1), ("10.0.0.2", 1), None):
        check(open_to_all, address)
        with pytest.raises(RateLimitError):
            check(open_to_all, address)


# In front of the real app, over real HTTP.

KEY, ADMIN = "search-key-of-the-test", "admin-key-of-the-test"
WITH_KEY = {"Authorization": f"Bearer {KEY}"}
CLOSING = {"api_keys": f"tester:{sha256(KEY)}", "admin_key": sha256(ADMIN)}


@pytest.fixture(scope="module")
def client(serve: Serve) -> Iterator[httpx.Client]:
    with serve(**CLOSING) as found:
        yield found


def search(client: httpx.Client, headers: Any = None) -> httpx.Response:
    return client.post("/search", json={"query": "bees"}, headers=headers)


def test_a_search_needs_a_key_and_passes_with_one(client: httpx.Client) -> None:
    before = samples(client)
    missing = search(client)
    assert_problem(missing, 401, "key_missing")
    assert missing.headers["www-authenticate"] == 'Bearer realm="glow"'
    right, same = ("Authorization", f"Bearer {KEY}"), ("X-API-Key", KEY)
    for headers in ([right], [same], [right, same], [right, right]):
        assert search(client, headers).status_code == 200
    refused = search(client, {"X-API-Key": "nonsense"})
    assert "nonsense" not in refused.text
    assert_problem(refused, 403, "key_refused")
    for name in ("key_missing", "key_refused"):
        counter = f'glow_rejected_total{{reason="{name}"}}'
        assert samples(client)[counter] == before[counter] + 1
    for value in (b"Bearer \xff\xfe", b"Bearer " + b"k" * 60_000):
        assert_problem(search(client, [(b"Authorization", value)]), 403, "key_refused")
    for other in (("X-API-Key", "other"), ("X-API-Key", ADMIN), ("Authorization", "Bearer other")):
        for headers in ([right, other], [other, right]):
            problem = assert_problem(search(client, headers), 403, "key_refused")
            assert "several different keys" in problem.detail


def test_what_is_closed_tells_nothing_of_what_there_is_and_operations_stay_open(client: httpx.Client) -> None:
    # An escaped path is judged as the router sees it.
    for path in ("/documents/1", "/documents/nope", "/nope", "/search/", "/%69nfo", "/%61dmin%2Freload"):
        assert_problem(client.get(path), 401, "key_missing")
    for method in ("GET", "DELETE", "OPTIONS", "HEAD"):
        assert client.request(method, "/search").status_code == 401
    assert_problem(client.get("/nope", headers=WITH_KEY), 404, "not_found")
    assert_problem(client.put("/search", headers=WITH_KEY), 405, "method_not_allowed")
    for path in ("/problems/..%2Finfo", "/static/..%2finfo"):
        assert_problem(client.get(path), 404, "not_found")
    operations = ("/healthz", "/readyz", "/metrics", "/problems/not_found")
    for path in (*operations, "/openapi.json", "/", "/static/app.js"):
        for headers in ({}, {"X-API-Key": "nonsense"}):
            assert client.get(path, headers=headers).status_code == 200, path


def test_a_refusal_does_not_wait_for_the_body(client: httpx.Client) -> None:
    head = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=5) as connection:
        connection.sendall(head + b"Content-Length: 60000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_neither_keys_nor_hashes_are_logged_or_shown(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tried = "a-key-that-is-wrong"
    # A service of its own: it logs its first refusal at once, and the next ones together.
    with serve(**CLOSING) as client:
        answers = [
            search(client, WITH_KEY),
            client.get("/info", headers={"X-API-Key": KEY}),
            client.get("/info", headers={"X-API-Key": tried}),
            client.get("/admin/reload", headers={"Authorization": f"Bearer {ADMIN}"}),
            client.get("/admin/reload", headers=WITH_KEY),
            client.get("/metrics"),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 403, 405, 403, 200]
    said = [answer.text + str(answer.headers) for answer in answers]
    records = [record for record in caplog.records if "httpcore" not in record.name]
    said += [record.getMessage() + str(vars(record)) for record in records]
    assert any("'key_refused'" in text for text in said)  # the log was looked at
    for secret in (KEY, ADMIN, tried, sha256(KEY), sha256(ADMIN)):
        assert not [text for text in said if secret in text]


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


# Pages of other sites: which origins the setting takes, and what browsers get to see.

SITE = "https://app.example.org"
PREFLIGHT = {"Origin": SITE, "Access-Control-Request-Method": "POST"}
PREFLIGHT |= {"Access-Control-Request-Headers": "authorization,content-type"}


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        (" \n", ()),
        ("*", ("*",)),
        (f" {SITE} , http://localhost:3000,{SITE}", (SITE, "http://localhost:3000")),
        ("http://a:443,http://[::1]:5173", ("http://a:443", "http://[::1]:5173")),
        *(
            (wrong, None)
            for wrong in ("app.example.org", "https://", "https://app.example.org/", "null", ",")
        ),
        *((f"{SITE}{end}", None) for end in (",*", ":65536", ":443", "\r\nx: y")),
        *((f"https://{host}", None) for host in ("me@a.org", "APP.org", "*.a.org", "bücher.example", "[::1")),
    ],
)
def test_origins_are_taken_as_browsers_write_them(text: str, origins: tuple[str, ...] | None) -> None:
    if origins is None:
        with pytest.raises(ValueError, match="cors_origins: "):
            Settings(index_root=Path(), cors_origins=text)
    else:
        assert parse_origins(text) == origins


def test_one_other_site_may_ask_and_read_and_no_other(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path, wait=False, cors_origins=SITE, **CLOSING) as client:
        answer = client.options("/search", headers=PREFLIGHT)  # without a key
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == SITE
        allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
        assert {"authorization", "x-api-key", "content-type", "x-request-id"} <= set(allowed)
        assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
        assert "access-control-allow-credentials" not in answer.headers
        refused = client.post("/search", headers={"Origin": SITE})
        assert_problem(refused, 401, "key_missing")
        assert refused.headers["access-control-allow-origin"] == SITE and "Origin" in refused.headers["vary"]
        exposed = refused.headers["access-control-expose-headers"].split(", ")
        assert set(exposed) == {"X-Request-ID", "Server-Timing", "X-Index-Version", "Retry-After"}
        for origin in ("https://evil.example", "null", SITE + ".evil.example"):
            assert client.options("/search", headers={**PREFLIGHT, "Origin": origin}).status_code == 400
            answer = client.post("/search", headers={"Origin": origin})
            assert "access-control-allow-origin" not in answer.headers
        for name, value in (("Method", "DELETE"), ("Headers", "x-other")):
            more = {f"Access-Control-Request-{name}": value}
            assert client.options("/search", headers={**PREFLIGHT, **more}).status_code == 400
