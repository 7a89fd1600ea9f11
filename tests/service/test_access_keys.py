"""Keys in settings, and the command that makes them."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from glow_service.access.keys import MAX_KEY_BYTES, check_keys, find_name, parse_admin_key, parse_keys

ROOT = Path(__file__).parent.parent.parent
ONE, TWO = (hashlib.sha256(key).hexdigest() for key in (b"one", b"two"))


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "glow", "key", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_entries_are_read_in_order_with_white_space_around_them() -> None:
    found = parse_keys(f" a:{ONE} ,\n b.c-d_E9 : {TWO.upper()} ")
    assert list(found.items()) == [("a", bytes.fromhex(ONE)), ("b.c-d_E9", bytes.fromhex(TWO))]
    assert parse_keys("") == parse_keys(" \n") == {}
    assert parse_admin_key(f" {ONE}\n") == bytes.fromhex(ONE)
    assert parse_admin_key("") is None


SECRET = "hunter2-Wq8"  # noqa: S105 - no password: what must not be shown
MALFORMED = [
    (SECRET, "entry 1 of 1 has no colon"),
    (f"a:{ONE},{SECRET}", "entry 2 of 2 has no colon"),
    (f"a:{SECRET}", "entry 1 of 1 has 11 characters, expected the 64 hexadecimal digits"),
    (f"a:{ONE[:-1]}", "entry 1 of 1 has 63 characters"),
    (f"a:{ONE[:-1]}g", "entry 1 of 1 has 64 characters"),
    (f"a:{ONE}:{SECRET}", "entry 1 of 1 has 76 characters"),
    (f"{ONE}:{SECRET}", "entry 1 of 1 has 11 characters"),
    (f"a:{ONE},", "entry 2 of 2 has no colon"),
    (f",a:{ONE}", "entry 1 of 2 has no colon"),
    (f":{ONE}", "entry 1 of 1: the name has 0 characters"),
    (f"a b:{ONE}", "entry 1 of 1: the name has 3 characters"),
    (f"{SECRET * 9}:{ONE}", "entry 1 of 1: the name has 99 characters"),
    (f"é:{ONE}", "entry 1 of 1: the name has 1 characters"),
    (f"admin:{ONE}", "not 'admin'"),
    (f"a:{ONE},a:{TWO}", "entry 2 of 2 has the same name as entry 1"),
    (f"a:{ONE},b:{TWO},c:{ONE}", "entry 3 of 3 has the same key as entry 1"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED, ids=[message[:40] for _, message in MALFORMED])
def test_a_malformed_entry_is_refused_by_its_place_and_none_of_it_is_shown(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        check_keys(text, "")
    shown = str(caught.value)
    assert shown.startswith("api_keys: ")
    assert SECRET not in shown
    assert ONE[:12] not in shown


def test_a_malformed_admin_key_is_refused_and_not_shown() -> None:
    for text in (SECRET, ONE + "0", f"admin:{ONE}"):
        with pytest.raises(ValueError, match="admin_key: it has") as caught:
            check_keys("", text)
        assert SECRET not in str(caught.value)
        assert ONE[:12] not in str(caught.value)


def test_the_admin_key_must_not_open_searches_too() -> None:
    check_keys(f"a:{ONE}", TWO)
    with pytest.raises(ValueError, match="admin_key: it is also entry 2 of api_keys") as caught:
        check_keys(f"a:{TWO},b:{ONE}", ONE)
    assert ONE[:12] not in str(caught.value)


def test_the_error_does_not_carry_the_text_along_as_its_cause() -> None:
    with pytest.raises(ValueError, match="api_keys") as caught:
        check_keys(SECRET, "")
    assert caught.value.__suppress_context__


def test_a_key_beyond_the_bound_is_refused_unread_even_if_its_hash_is_known() -> None:
    for size, name in ((MAX_KEY_BYTES, "a"), (MAX_KEY_BYTES + 1, None)):
        key = b"k" * size
        assert find_name(key, {"a": hashlib.sha256(key).digest()}) == name


def test_a_made_key_is_the_one_that_its_entry_knows() -> None:
    done = make("alice")
    assert (done.returncode, done.stderr) == (0, "")
    _, key, _, entry = done.stdout.splitlines()
    assert len(key) == 43
    assert find_name(key.encode(), parse_keys(entry)) == "alice"
    assert make("alice").stdout.splitlines()[1] != key


@pytest.mark.parametrize(("flag", "name"), [("--admin", "GLOW_ADMIN_KEY"), ("--write", "GLOW_WRITE_KEY")])
def test_a_made_admin_key_is_the_one_that_its_setting_knows(flag: str, name: str) -> None:
    _, key, _, line = make(flag).stdout.splitlines()
    variable, _, value = line.partition("=")
    assert variable == name
    assert find_name(key.encode(), {"admin": parse_admin_key(value) or b""}) == "admin"


@pytest.mark.parametrize(
    "arguments",
    [[], ["alice", "--admin"], ["--write", "--admin"], ["al ice"], ["admin"], ["x" * 65], ["a", "b"]],
)
def test_a_wrong_call_is_a_usage_error_and_makes_no_key(arguments: list[str]) -> None:
    done = make(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "rror" in done.stderr


def test_the_command_is_documented_with_its_options() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert "glow key alice" in page
    assert "glow key --admin" in page
    assert "glow key --write" in page
