"""`X-Forwarded-For` counts from a trusted proxy alone: nobody gets another rate, or another mark in the log of clicks, by writing it.

The proxy is 127.0.0.1, which uvicorn trusts unless told otherwise; strangers come from 127.0.0.2.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from glow.query_log import read_feedback
from tests.attacks.harness import serving, until

BURST = 5
FORGED = (
    "203.0.113.{}",
    "203.0.113.{}, 127.0.0.1",
    "127.0.0.1, 203.0.113.{}",
    "203.0.113.{}:8080",
    "[2001:db8:{}::1]",
    "unknown-{}",
    "::ffff:203.0.113.{}",
    '203.0.113.{}"\\r\\nX: y',
    "x" * 4_000 + "{}",
)
HEADERS = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("addresses")


@pytest.fixture(scope="module")
def url(toy_index: Path, folder: Path) -> Iterator[str]:
    """A service without keys, where an address is all that tells clients apart."""
    flags = (
        "--rate-limit",
        "0.001",
        "--rate-burst",
        str(BURST),
        "--feedback-log",
        str(folder / "feedback.jsonl"),
    )
    with serving(toy_index, *flags) as running:
        yield running.url


def from_(url: str, address: str) -> httpx.Client:
    """A client at an address of this machine."""
    return httpx.Client(base_url=url, transport=httpx.HTTPTransport(local_address=address), timeout=30)


def forged() -> list[dict[str, str]]:
    """Headers that name another address each time."""
    found = [{name: text.format(number)} for number, text in enumerate(FORGED) for name in HEADERS[:1]]
    found += [{name: f"198.51.100.{number}"} for number, name in enumerate(HEADERS[1:])]
    found += [{"Forwarded": f"for=198.51.100.{number};proto=https"} for number in range(3)]
    return found


def search(client: httpx.Client, headers: dict[str, str], number: int) -> int:
    return client.post("/search", json={"query": f"bees {number}"}, headers=headers).status_code


def test_a_stranger_has_one_rate_whatever_address_he_writes(url: str) -> None:
    with from_(url, "127.0.0.2") as client:
        statuses = [search(client, headers, number) for number, headers in enumerate(forged() * 2)]
    assert statuses == [200] * BURST + [429] * (len(statuses) - BURST)


def test_behind_the_proxy_the_address_that_the_proxy_saw_counts(url: str) -> None:
    """The proxy appends; what stands before its own entry was written by the client."""
    with from_(url, "127.0.0.1") as proxy:
        statuses = [
            search(proxy, {"X-Forwarded-For": f"192.0.2.{number}, 198.51.100.200"}, number)
            for number in range(12)
        ]
        assert statuses == [200] * BURST + [429] * (12 - BURST)
        assert search(proxy, {"X-Forwarded-For": "198.51.100.201"}, 99) == 200, (
            "another client has a rate of its own"
        )


def test_a_stranger_has_one_mark_in_the_log_of_clicks(url: str, folder: Path) -> None:
    with from_(url, "127.0.0.4") as client, from_(url, "127.0.0.5") as other:
        request_id = other.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "toy/0", "kind": "click"}
        for number, headers in enumerate(forged()[:BURST]):
            response = client.post("/feedback", json={**sent, "user": f"somebody {number}"}, headers=headers)
            assert response.status_code == 202
        assert other.post("/feedback", json=sent).status_code == 202
    log = folder / "feedback.jsonl"  # of the first worker; the second has its own
    assert until(lambda: log.exists() and len([*read_feedback(log)]) == BURST + 1, 20)
    marks = Counter(feedback.source for feedback in read_feedback(log))
    assert sorted(marks.values()) == [1, BURST]
