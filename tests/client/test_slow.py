"""A service that sends nothing or too much: a try of either client ends in time, and the next one is as ever."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from glow.client import GlowClient, ResponseTimeoutError, RetryPolicy
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
