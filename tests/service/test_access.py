"""Access control: keys in settings, rate limits on a clock of the test's own, and which paths need which key."""

import hashlib
import hmac
import math
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from glow.errors import GlowError
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
)
from glow_service.api.problems import problem_of
from glow_service.api.routes import PAGE_FILES, ROUTES
from glow_service.commands.serve import key_command
from glow_service.errors import KeyMissingError, KeyRefusedError, RateLimitError
from glow_service.settings import Settings
from glow_service.state import client_limits
from glow_service.telemetry.metrics import Metrics

ONE, TWO = (hashlib.sha256(key).hexdigest() for key in (b"one", b"two"))


def make(*arguments: str) -> Result:
    app = typer.Typer(add_completion=False)
    app.command()(key_command)
    return CliRunner().invoke(app, arguments)


def test_entries_are_read_in_order_with_white_space_around_them() -> None:
    found = parse_keys(f" a:{ONE} ,\n b.c-d_E9 : {TWO.upper()} ")
    assert list(found.items()) == [("a", bytes.fromhex(ONE)), ("b.c-d_E9", bytes.fromhex(TWO))]
    assert parse_keys("") == parse_keys(" \n") == {}
    assert access.parse_key(f" {ONE}\n") == bytes.fromhex(ONE) and access.parse_key("") is None


SECRET = "hunter2-Wq8"  # noqa: S105 - no password: what must not be shown
MALFORMED = [
    (f"a:{ONE},{SECRET}", "entry 2 of 2 has no colon"),
    (f"a:{ONE[:-1]}g", "entry 1 of 1 has 64 characters"),
    (f"{ONE}:{SECRET}", "entry 1 of 1 has 11 characters, expected the 64 hexadecimal digits"),
    (f"a:{ONE},", "entry 2 of 2 has no colon"),
    (f"{SECRET * 9}:{ONE}", "entry 1 of 1: the name has 99 characters"),
    (f"é:{ONE}", "entry 1 of 1: the name has 1 characters"),
    (f"admin:{ONE}", "not 'admin'"),
    (f"a:{ONE},a:{TWO}", "entry 2 of 2 repeats the name"),
    (f"a:{ONE},b:{TWO},c:{ONE}", "entry 3 of 3 repeats the name or the key"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_a_malformed_entry_is_refused_by_its_place_and_none_of_it_is_shown(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        access.check_keys(text, "")
    shown = str(caught.value)
    assert shown.startswith("api_keys: ") and SECRET not in shown and ONE[:12] not in shown
    assert caught.value.__context__ is None


def test_the_admin_key_must_not_open_searches_too_and_is_not_shown() -> None:
    for text in (SECRET, ONE + "0", f"admin:{ONE}"):
        with pytest.raises(ValueError, match="admin_key: it has") as caught:
            access.check_keys("", text)
        assert not any(secret in str(caught.value) for secret in (SECRET, ONE[:12]))
    access.check_keys(f"a:{ONE}", TWO)
    with pytest.raises(ValueError, match="admin_key: it is also another setting's key") as caught:
        access.check_keys(f"a:{TWO},b:{ONE}", ONE)
    assert ONE[:12] not in str(caught.value)


def test_a_key_beyond_the_bound_is_refused_unread_even_if_its_hash_is_known() -> None:
    for size, name in ((access.MAX_KEY_BYTES, "a"), (access.MAX_KEY_BYTES + 1, None)):
        key = b"k" * size
        assert find_name(key, {"a": hashlib.sha256(key).digest()}) == name


def test_a_made_key_is_the_one_that_its_entry_knows() -> None:
    done = make("alice")
    assert (done.exit_code, done.stderr) == (0, "")
    _, key, _, entry = done.stdout.splitlines()
    assert len(key) == 43 and find_name(key.encode(), parse_keys(entry)) == "alice"
    assert make("alice").stdout.splitlines()[1] != key


def test_a_made_admin_or_write_key_is_the_one_that_its_setting_knows() -> None:
    for flag in ("--admin", "--write"):
        _, key, _, line = make(flag).stdout.splitlines()
        variable, _, value = line.partition("=")
        assert variable == f"GLOW_{flag[2:].upper()}_KEY"
        assert find_name(key.encode(), {"it": access.parse_key(value) or b""}) == "it"


@pytest.mark.parametrize("arguments", [[], ["alice", "--admin"], ["al ice"], ["admin"]])
def test_a_wrong_call_is_a_usage_error_and_makes_no_key(arguments: list[str]) -> None:
    done = make(*arguments)
    assert (done.exit_code, done.stdout) == (2, "") and "rror" in done.stderr


# Token buckets, on a clock of the test's own.


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 1e6) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now


rates = st.floats(0.001, 1_000)
pauses = st.lists(st.floats(0, 20), max_size=40)


@given(rates, st.integers(1, 20), st.floats(0, 1e9), pauses)
def test_who_waits_as_told_is_let_in(rate: float, burst: int, start: float, steps: list[float]) -> None:
    clock = Clock(start)
    limiter = RateLimiter(rate, burst, max_clients=10, clock=clock)
    for step in steps:
        clock.now += step
        if wait_s := limiter.take("a"):
            clock.now += wait_s
            assert limiter.take("a") == 0


@given(rates, st.integers(1, 20), pauses)
def test_no_more_are_let_in_than_burst_and_rate_allow(rate: float, burst: int, steps: list[float]) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, burst, max_clients=10, clock=clock)
    passed = 0
    for step in steps:
        clock.now += step
        passed += limiter.take("a") == 0
    allowed = burst + (clock.now - 1e6) * rate
    assert passed <= math.floor(allowed + 1e-3)


def test_the_client_that_was_idle_longest_is_forgotten_first() -> None:
    clock = Clock()
    limiter = RateLimiter(rate=0.001, burst=1, max_clients=3, clock=clock)
    for client in "abc":
        limiter.take(client)
    assert limiter.take("a") > 0  # a is in use again, so b is now the idlest
    assert limiter.take("d") == 0 and len(limiter) == 3
    assert [limiter.take(client) > 0 for client in "acd"] == [True, True, True]
    assert limiter.take("b") == 0


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


# The access_control: which paths need which key, what counts as a key, and that looking at one tells nothing.

KEYS = {"alice": b"alice-key", "bob": b"bob-key", "carol": b"carol-key"}
ADMIN_KEY = b"admin-key"


def digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def api_keys() -> str:
    return ",".join(f"{name}:{digest(key)}" for name, key in KEYS.items())


def make_access(rate_limit: float = 0.0, rate_burst: int = 50, **values: Any) -> AccessControl:
    limits = client_limits(Settings(index_root=Path(), rate_limit=rate_limit, rate_burst=rate_burst))
    return AccessControl(Metrics(), limiter=limits.requests, **values)


@pytest.fixture
def access_control() -> AccessControl:
    """With three search keys and an admin key."""
    return make_access(api_keys=api_keys(), admin_key=digest(ADMIN_KEY))


def scope(path: str = "/search", *headers: tuple[bytes, bytes], client: Any = ("10.0.0.1", 5)) -> Any:
    method = "GET" if "/documents/" in path else "POST"  # whoever only reads
    return {"type": "http", "method": method, "path": path, "headers": list(headers), "client": client}


def bearer(key: bytes) -> tuple[bytes, bytes]:
    return (b"authorization", b"Bearer " + key)


# ---- the table of paths


def test_every_route_and_page_file_is_in_the_table() -> None:
    paths = [path for route in ROUTES for path in route.paths]
    paths = [path.replace("{id:path}", "x/y").replace("{code}", "x") for path in paths]
    missing = [path for path in [*paths, *PAGE_FILES] if listed_access(path) is None]
    assert not missing, f"say in service/access.py who may ask for {missing}"
    assert listed_access("/new-route") is None and access_of("/new-route") is Access.KEY


def test_what_is_open_is_a_short_list() -> None:
    rows = {path for path, kind in ACCESS.items() if kind is Access.OPEN}
    page = {"/", "/docs", "/static/*", "/openapi.json"}
    assert rows == page | {"/healthz", "/readyz", "/metrics", "/problems/*"}


CLOSED = [
    *("/search", "/v1/search/batch", "/v1/embeddings", "/info", "/v1/documents/a/b", "/documents/", "/nope"),
    *(
        "/search/",
        "//search",
        "",
        "*",
        "/healthz/",
        "/static",
        "/readyz/x",
        "/HEALTHZ",
        "/metrics\0",
        "/../search",
    ),
]


def test_everything_else_needs_one_of_the_keys(access_control: AccessControl) -> None:
    for path in CLOSED:
        with pytest.raises(KeyMissingError):
            access_control.check(scope(path))
        with pytest.raises(KeyRefusedError):
            access_control.check(scope(path, bearer(ADMIN_KEY)))
        for name, key in KEYS.items():
            assert access_control.check(scope(path, bearer(key))) == name


def test_without_keys_everyone_may_search() -> None:
    access_control = make_access(admin_key=digest(ADMIN_KEY))
    assert access_control.check(scope()) == access_control.check(scope("/search", bearer(b"whatever"))) == ""
    with pytest.raises(KeyMissingError):
        access_control.check(scope("/admin/reload"))


# ---- what counts as a key


def test_a_key_comes_in_either_header_and_a_proxys_own_authorization_is_none(
    access_control: AccessControl,
) -> None:
    for value in (b"bearer alice-key", b"BEARER \t alice-key  "):
        assert access_control.check(scope("/search", (b"authorization", value))) == "alice"
    for value in (b"", b"Bearer\t", b"alice-key", b"Basic YWxpY2U6eA==", b"Beareralice-key"):
        with pytest.raises(KeyMissingError):
            access_control.check(scope("/search", (b"authorization", value), (b"x-api-key", b"")))
        headers = ((b"authorization", value), (b"x-api-key", b"  bob-key\t"))
        assert access_control.check(scope("/search", *headers)) == "bob"


def test_what_is_near_a_key_is_refused_and_not_shown(access_control: AccessControl) -> None:
    hashes = (digest(b"alice-key").encode(), hashlib.sha256(b"alice-key").digest())
    for key in (b"alice-key,bob-key", b"Alice-key", b"alice-ke", b"alice-key\0", b"a" * 65_000, *hashes):
        for header in (bearer(key), (b"x-api-key", key)):
            with pytest.raises(KeyRefusedError) as caught:
                access_control.check(scope("/search", header))
            assert repr(key)[2:12] not in str(caught.value)


@given(st.binary(max_size=200), st.sampled_from([b"authorization", b"x-api-key"]))
def test_no_bytes_of_a_header_break_the_gate(value: bytes, name: bytes) -> None:
    access_control = AccessControl(Metrics(), api_keys=api_keys())
    with pytest.raises((KeyMissingError, KeyRefusedError)):
        access_control.check(scope("/search", (name, value)))


# ---- what a check may tell


@pytest.mark.parametrize("key", [*KEYS.values(), b"nonsense", b""])
def test_every_digest_is_compared_whichever_key_came(
    access_control: AccessControl, key: bytes, monkeypatch: Any
) -> None:
    compared: list[bytes] = []

    class Watched:
        @staticmethod
        def compare_digest(given: bytes, stored: bytes) -> bool:
            compared.append(stored)
            return hmac.compare_digest(given, stored)

    monkeypatch.setattr(access, "hmac", Watched)
    try:
        access_control.check(scope("/search", (b"x-api-key", key or b"-")))
    except GlowError:
        pass
    assert compared == [hashlib.sha256(stored).digest() for stored in KEYS.values()]


def test_settings_show_neither_keys_nor_hashes(tmp_path: Path) -> None:
    settings = Settings(index_root=tmp_path, api_keys=api_keys(), admin_key=digest(ADMIN_KEY))
    shown = f"{settings!r} {settings} {settings.public()} {settings.model_dump_json()}"
    assert "alice" not in shown
    assert not any(digest(key) in shown for key in (*KEYS.values(), ADMIN_KEY))


def test_the_documented_errors_of_a_path_are_those_of_the_gate() -> None:
    assert {problem_of(kind).status for kind in access_errors("/search")} == {401, 403, 429}
    assert {problem_of(kind).status for kind in access_errors("/admin/reload")} == {401, 403, 404}
    assert access_errors("/healthz") == ()


# ---- how often


def test_each_key_and_without_keys_each_address_has_a_rate_of_its_own() -> None:
    def ask(access_control: AccessControl, address: Any, *headers: tuple[bytes, bytes]) -> str:
        return access_control.check(scope("/search", *headers, client=address))

    keyed, open_to_all = (
        make_access(api_keys=keys, rate_limit=0.25, rate_burst=1) for keys in (api_keys(), "")
    )
    ask(keyed, ("10.0.0.1", 1), bearer(b"alice-key"))
    with pytest.raises(RateLimitError) as caught:
        ask(keyed, ("10.0.0.2", 1), bearer(b"alice-key"))
    assert caught.value.retry_after_s == 4
    assert ask(keyed, ("10.0.0.1", 1), bearer(b"bob-key")) == "bob"
    for address in (("10.0.0.1", 1), ("10.0.0.2", 1), None):
        ask(open_to_all, address)
        with pytest.raises(RateLimitError):
            ask(open_to_all, address)


def test_open_paths_and_refused_keys_use_nothing_up() -> None:
    access_control = make_access(api_keys=api_keys(), rate_limit=0.25, rate_burst=1)
    for _ in range(5):
        access_control.check(scope("/healthz", bearer(b"alice-key")))
        with pytest.raises(KeyRefusedError):
            access_control.check(scope("/search", bearer(b"alice-kez")))
    access_control.check(scope("/search", bearer(b"alice-key")))


def test_many_clients_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_CLIENTS", 100)
    limits = client_limits(Settings(index_root=Path(), rate_limit=0.25, rate_burst=1))
    for limiter in (limits.requests, limits.feedback):
        assert limiter is not None
        for number in range(1_000):
            limiter.take(f"client {number}")
        assert len(limiter) == 100
