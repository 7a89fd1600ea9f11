"""A service that sends slowly or too much: a try of either client ends in time, and the next one is as ever."""

import gzip
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
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


@pytest.mark.parametrize("mode", ["trickle", "hang"])
def test_a_try_ends_as_a_whole(peer: SlowPeer, call: Any, mode: Any) -> None:
    hasty = {"timeout_s": WITHIN_S, "retry": RetryPolicy(attempts=3)}
    with peer.slow(mode):
        started = time.monotonic()
        with pytest.raises(ResponseTimeoutError, match="timeout_s"):
            call(peer.url, "search", "bees", client=hasty)
        assert WITHIN_S * 0.9 < time.monotonic() - started < WITHIN_S + SLACK_S
    assert call(peer.url, "search", "bees", client=hasty).hits[0].id == "a/b"
    until(lambda: not peer.connections)


def test_a_kept_connection_that_turns_slow_ends_in_time_beside_one_that_is_not(
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

        with peer.slow():
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


def test_a_body_that_trickles_to_a_client_of_ones_own_ends_too(peer: SlowPeer) -> None:
    class Slowly(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                time.sleep(0.2)
                yield b" "

    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Slowly()))
    with GlowClient(peer.url, timeout_s=WITHIN_S, http=httpx.Client(transport=transport)) as client:
        started = time.monotonic()
        with pytest.raises(ResponseTimeoutError):
            client.search("bees")
        assert time.monotonic() - started < WITHIN_S + SLACK_S


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_response_that_is_too_long_is_refused(stub: Any, call: Any, reply: Any, encoding: str) -> None:
    body = b'{"a": "' + b"x" * (1 << 20) + b'"}'
    headers = {"Content-Encoding": encoding} if encoding else {}
    stub.script = [reply(body=gzip.compress(body) if encoding else body, headers=headers)]
    with pytest.raises(InvalidResponseError, match="more than 100000 bytes; request less"):
        call(stub.url, "search", "bees", client={"max_response_bytes": 100_000})
