"""A service that sends nothing or too much: a try of either client ends in time, and the next one is as ever."""

import gzip
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from glow.client import GlowClient, InvalidResponseError, ResponseTimeoutError, RetryPolicy
from tests.slow_peer import SlowPeer
from tests.until import until

WITHIN_S = 0.5
SLACK_S = 1.0


@pytest.fixture
def peer(stub: Any) -> Iterator[SlowPeer]:
    """The stub's service behind a proxy."""
    with SlowPeer(stub.server_port) as peer:
        yield peer


def test_a_service_that_sends_nothing_ends_in_time(peer: SlowPeer, call: Any) -> None:
    hasty = {"timeout_s": WITHIN_S, "retry": RetryPolicy(attempts=3)}
    with peer.slow("hang"):
        started = time.monotonic()
        with pytest.raises(ResponseTimeoutError, match="timeout_s"):
            call(peer.url, "search", "bees", client=hasty)
        assert WITHIN_S * 0.9 < time.monotonic() - started < WITHIN_S + SLACK_S
    assert call(peer.url, "search", "bees", client=hasty).hits[0].id == "a/b"
    until(lambda: not peer.connections)


def test_a_kept_connection_that_turns_silent_ends_in_time_beside_one_that_is_not(
    peer: SlowPeer, stub: Any
) -> None:
    with GlowClient(peer.url, timeout_s=WITHIN_S) as slow, GlowClient(stub.url, timeout_s=5) as other:
        assert slow.search("bees").hits
        found: list[type[BaseException] | None] = []

        def ask() -> None:
            try:
                slow.search("bees")
                found.append(None)
            except ResponseTimeoutError as error:
                found.append(type(error))

        with peer.slow("hang"):
            threads = [threading.Thread(target=ask) for _ in range(8)]
            started = time.monotonic()
            for thread in threads:
                thread.start()
            assert other.search("bees").hits and time.monotonic() - started < 0.5
            for thread in threads:
                thread.join()
            assert time.monotonic() - started < WITHIN_S + SLACK_S
        assert found == [ResponseTimeoutError] * 8
        assert slow.search("bees").hits


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_response_that_is_too_long_is_refused(stub: Any, call: Any, reply: Any, encoding: str) -> None:
    body = b'{"a": "' + b"x" * (1 << 20) + b'"}'
    headers = {"Content-Encoding": encoding} if encoding else {}
    stub.script = [reply(body=gzip.compress(body) if encoding else body, headers=headers)]
    with pytest.raises(InvalidResponseError, match="more than 100000 bytes; request less"):
        call(stub.url, "search", "bees", client={"max_response_bytes": 100_000})
