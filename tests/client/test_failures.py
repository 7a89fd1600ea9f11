"""Refusals, cut connections, slow and foreign answers, met over real HTTP by both clients."""

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from glow import client as glow_client
from glow.client import (
    BadRequestError,
    BusyError,
    ClientError,
    ConnectionFailedError,
    GlowClient,
    InternalServiceError,
    InvalidResponseError,
    ResponseTimeoutError,
    RetryPolicy,
    ServiceError,
)
from glow.contract import InvalidValue
from glow.errors import ConfigError, GlowError
from tests.client.conftest import Reply, problem
from tests.slow_peer import SlowPeer
from tests.until import until

QUERY = {"text": "bees", "tokens": 3, "truncated": False, "terms": []}
QUICK = {"retry": RetryPolicy(first_pause_s=0.01)}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, BadRequestError) for status in (400, 409, 413, 415, 422)),
        *((status, glow_client.AccessDeniedError) for status in (401, 403)),
        (404, glow_client.NotFoundError),
        *((status, InternalServiceError) for status in (500, 502)),
        (504, glow_client.DeadlineExceededError),
    ],
)
def test_a_problem_is_a_typed_error_and_is_not_tried_again(
    stub: Any, call: Any, status: int, kind: type[ServiceError]
) -> None:
    fault = {"pointer": "/top_k", "detail": "too many"}
    stub.script = [problem(status, "some_code", "it is so", errors=[fault])]
    with pytest.raises(GlowError) as caught:
        call(stub.url, "search", "bees", client=QUICK)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.detail) == (status, "some_code", "it is so")
    assert error.faults == (InvalidValue("/top_k", "too many"),)
    assert str(error) == f"{status} some_code: it is so (request r7)"
    assert len(stub.seen) == 1


@pytest.mark.parametrize(("status", "kind"), [(429, BusyError), (503, glow_client.UnavailableServiceError)])
def test_a_refusal_for_now_is_tried_again_not_before_retry_after(
    stub: Any, call: Any, status: int, kind: type[ServiceError]
) -> None:
    stub.script = [problem(status, "overloaded", retry_after="0.3"), Reply()]
    assert call(stub.url, "search", "bees", client=QUICK).hits[0].id == "a/b"
    first, second = stub.seen
    assert second.at_s - first.at_s >= 0.3
    assert first.body == second.body
    stub.script = [problem(status, "overloaded")]
    stub.seen.clear()
    with pytest.raises(kind):
        call(stub.url, "search", "bees", client=QUICK)
    assert len(stub.seen) == 4


def test_a_wait_longer_than_the_policy_allows_ends_at_once(stub: Any, call: Any) -> None:
    stub.script = [problem(429, "rate_limited", retry_after="60")]
    started = time.monotonic()
    with pytest.raises(BusyError) as caught:
        call(stub.url, "search", "bees")
    assert caught.value.retry_after_s == 60
    assert time.monotonic() - started < 10
    assert len(stub.seen) == 1


def longest_pause(
    policy: RetryPolicy, attempt: int, elapsed_s: float = 0.0, header: str = ""
) -> float | None:
    response = httpx.Response(429, headers={"Retry-After": header} if header else {})
    pauses = [policy.pause_s(response, attempt, elapsed_s) for _ in range(200)]
    return max((pause for pause in pauses if pause is not None), default=None)


def test_pauses_double_with_jitter_over_the_whole() -> None:
    policy = RetryPolicy(attempts=6, total_s=100, first_pause_s=1)
    for attempt, most in ((1, 1), (2, 2), (3, 4)):
        assert most * 0.9 < longest_pause(policy, attempt) <= most
    assert 10.9 < longest_pause(policy, 1, header="10") <= 11
    in_ten_seconds = format_datetime(datetime.now(UTC) + timedelta(seconds=10), usegmt=True)
    assert 8 < longest_pause(policy, 1, header=in_ten_seconds) <= 11
    for bad in ("-5", "nan", "inf", "soon"):
        assert 0.9 < longest_pause(policy, 1, header=bad) <= 1


def test_no_try_begins_after_the_last_or_after_the_total_time() -> None:
    policy = RetryPolicy(attempts=2, total_s=5, first_pause_s=1)
    assert longest_pause(policy, 2) is None
    assert longest_pause(policy, 1, elapsed_s=5.1) is None
    assert longest_pause(policy, 1, elapsed_s=2, header="3.1") is None
    assert longest_pause(policy, 1, elapsed_s=2, header="1.9") is not None
    with pytest.raises(ConfigError, match="at least 1"):
        RetryPolicy(attempts=0)
    with pytest.raises(ConfigError, match="times at least 0"):
        RetryPolicy(total_s=-1)


def test_a_connection_that_was_refused_is_tried_again_until_the_service_is_there(call: Any) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"  # bound, and not listening
        policy = RetryPolicy(attempts=3, first_pause_s=0.05)
        with pytest.raises(ConnectionFailedError, match="check the address") as caught:
            call(url, "search", "bees", client={"retry": policy})
    assert caught.value.code == "connection_failed" and url in str(caught.value)


@pytest.mark.parametrize("cut", [-1, 0, 10])
def test_a_connection_cut_after_the_request_was_sent_is_an_error_and_not_tried_again(
    stub: Any, call: Any, cut: int
) -> None:
    stub.script = [Reply(cut=cut)]
    with pytest.raises(ConnectionFailedError):
        call(stub.url, "search", "bees", client=QUICK)
    assert len(stub.seen) == 1


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"hits": [', "which is not a response of GLOW"),
        (b"<html>hello</html>", "which is not a response of GLOW"),
        (b"\xff\xfe\x00", "which is not a response of GLOW"),
        ([], "`object`, got `array`"),
        ({}, "`index`"),
        ({"index": {"version": "v", "model": "m"}, "query": QUERY}, "`hits`"),
        ({"index": {"version": 3, "model": "m"}, "query": QUERY, "hits": []}, "$.index.version"),
        ({"index": {"version": "v", "model": "m"}, "query": QUERY, "hits": [{"id": "a"}]}, "$.hits[0]"),
    ],
)
def test_an_answer_that_is_not_the_contracts_is_refused_and_says_where(
    stub: Any, call: Any, body: Any, place: str
) -> None:
    stub.script = [Reply(body)]
    with pytest.raises(InvalidResponseError) as caught:
        call(stub.url, "search", "bees")
    assert place in str(caught.value)


def test_a_failure_page_of_something_in_between_is_an_error_of_its_status(stub: Any, call: Any) -> None:
    stub.script = [Reply(b"<html>Bad gateway</html>", 502)]
    with pytest.raises(InternalServiceError, match="Bad gateway") as caught:
        call(stub.url, "search", "bees", client=QUICK)
    assert (caught.value.status, caught.value.code, caught.value.request_id) == (502, "service_failed", "")


def test_a_body_that_lies_about_its_encoding_is_a_client_error(stub: Any, call: Any) -> None:
    stub.script = [Reply(b"not gzip", headers={"Content-Encoding": "gzip"})]
    with pytest.raises(ClientError):
        call(stub.url, "search", "bees")


def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else(stub: Any, call: Any) -> None:
    stub.script = [Reply({}, 307, {"Location": f"{stub.url}/elsewhere"})]
    with pytest.raises(InvalidResponseError, match="no redirect"):
        call(stub.url, "search", "bees", client={"api_key": "secret"})
    assert [seen.path for seen in stub.seen] == ["/v1/search"]


# A service that sends nothing: a try ends in time, and the next one is as ever.

WITHIN_S = 0.3
SLACK_S = 1.0


@pytest.fixture
def peer(stub: Any) -> Iterator[SlowPeer]:
    with SlowPeer(stub.server_port) as peer:
        yield peer


def test_a_service_that_sends_nothing_ends_in_time_and_is_not_tried_again(
    peer: SlowPeer, stub: Any, call: Any
) -> None:
    hasty = {**QUICK, "timeout_s": WITHIN_S}
    with peer.slow("hang"):
        started = time.monotonic()
        with pytest.raises(ResponseTimeoutError, match="timeout_s"):
            call(peer.url, "search", "bees", client=hasty)
        assert WITHIN_S * 0.9 < time.monotonic() - started < WITHIN_S + SLACK_S
    assert len(stub.seen) == 1
    assert call(peer.url, "search", "bees", client=hasty).hits[0].id == "a/b"
    until(lambda: not peer.connections)


def test_a_kept_connection_that_turns_silent_ends_in_time_beside_one_that_is_not(
    peer: SlowPeer, stub: Any
) -> None:
    with GlowClient(peer.url, timeout_s=WITHIN_S) as slow, GlowClient(stub.url, timeout_s=5) as other:
        assert slow.search("bees").hits
        found: list[type[BaseException]] = []

        def ask() -> None:
            try:
                slow.search("bees")
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
