"""Refusals, cut connections, slow and foreign answers, met over real HTTP by both clients."""

import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from glow.client import (
    AccessDeniedError,
    BadRequestError,
    BusyError,
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InternalServiceError,
    InvalidResponseError,
    NotFoundError,
    ResponseTimeoutError,
    RetryPolicy,
    ServiceError,
    UnavailableServiceError,
)
from glow.contract import InvalidValue
from glow.errors import GlowError

QUERY = {"text": "bees", "tokens": 3, "truncated": False, "terms": []}
QUICK = {"retry": RetryPolicy(first_pause_s=0.01)}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (404, NotFoundError),
        (409, BadRequestError),
        (413, BadRequestError),
        (415, BadRequestError),
        (422, BadRequestError),
        (500, InternalServiceError),
        (502, InternalServiceError),
        (504, DeadlineExceededError),
    ],
)
def test_a_problem_is_a_typed_error_and_is_not_tried_again(
    stub: Any, call: Any, problem: Any, status: int, kind: type[ServiceError]
) -> None:
    fault = {"pointer": "/top_k", "detail": "too many"}
    stub.script = [problem(status, "some_code", "it is so", errors=[fault])]
    with pytest.raises(ServiceError) as caught:
        call(stub.url, "search", "bees", client=QUICK)
    error = caught.value
    assert type(error) is kind
    assert isinstance(error, GlowError)
    assert (error.status, error.code, error.detail, error.request_id) == (
        status,
        "some_code",
        "it is so",
        "r7",
    )
    assert error.faults == (InvalidValue("/top_k", "too many"),)
    assert str(error) == f"{status} some_code: it is so (request r7)"
    assert len(stub.seen) == 1


@pytest.mark.parametrize(("status", "kind"), [(429, BusyError), (503, UnavailableServiceError)])
def test_a_refusal_for_now_is_tried_again_not_before_retry_after(
    stub: Any, call: Any, problem: Any, reply: Any, answer: Any, status: int, kind: type[ServiceError]
) -> None:
    stub.script = [problem(status, "overloaded", headers={"Retry-After": "1"}), reply(body=answer)]
    assert call(stub.url, "search", "bees", client=QUICK).hits[0].id == "a/b"
    first, second = stub.seen
    assert second.at_s - first.at_s >= 1.0
    assert first.body == second.body
    stub.script = [problem(status, "overloaded")]
    stub.seen.clear()
    with pytest.raises(kind):
        call(stub.url, "search", "bees", client=QUICK)
    assert len(stub.seen) == 4


def test_a_date_in_retry_after_is_honoured(
    stub: Any, call: Any, problem: Any, reply: Any, answer: Any
) -> None:
    asked: list[datetime] = []

    def in_two_seconds() -> str:
        asked.append(datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2))
        return format_datetime(asked[0], usegmt=True)

    stub.script = [problem(503, "draining", headers={"Retry-After": in_two_seconds}), reply(body=answer)]
    call(stub.url, "search", "bees", client=QUICK)
    _, second = stub.seen
    assert second.date >= asked[0] - timedelta(milliseconds=50)


def test_a_wait_longer_than_the_policy_allows_ends_at_once(stub: Any, call: Any, problem: Any) -> None:
    stub.script = [problem(429, "rate_limited", headers={"Retry-After": "60"})]
    started = time.monotonic()
    with pytest.raises(BusyError) as caught:
        call(stub.url, "search", "bees")
    assert caught.value.retry_after_s == 60
    assert time.monotonic() - started < 10
    assert len(stub.seen) == 1


def test_a_connection_that_was_refused_is_tried_again_until_the_service_is_there(call: Any) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"  # bound, and not listening
        policy = RetryPolicy(attempts=3, first_pause_s=0.05)
        started = time.monotonic()
        with pytest.raises(ConnectionFailedError) as caught:
            call(url, "search", "bees", client={"retry": policy})
    assert time.monotonic() - started < 20
    assert caught.value.code == "connection_failed"
    assert url in str(caught.value)
    assert "check the address" in str(caught.value)


@pytest.mark.parametrize("cut", [-1, 0, 10])
def test_a_connection_cut_after_the_request_was_sent_is_an_error_and_not_tried_again(
    stub: Any, call: Any, reply: Any, answer: Any, cut: int
) -> None:
    stub.script = [reply(body=answer, cut=cut)]
    with pytest.raises(ConnectionFailedError):
        call(stub.url, "search", "bees", client=QUICK)
    assert len(stub.seen) == 1


def test_an_answer_that_does_not_come_in_time_is_named_and_not_tried_again(
    stub: Any, call: Any, reply: Any, answer: Any
) -> None:
    stub.script = [reply(body=answer, after_s=20.0)]
    started = time.monotonic()
    with pytest.raises(ResponseTimeoutError) as caught:
        call(stub.url, "search", "bees", client={**QUICK, "timeout_s": 0.1})
    assert time.monotonic() - started < 10
    assert "timeout_s" in str(caught.value)
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
        (
            {"index": {"version": "v", "model": "m"}, "query": QUERY, "hits": [{"id": "a", "score": True}]},
            "$.hits[0].score",
        ),
    ],
)
def test_an_answer_that_is_not_the_contracts_is_refused_and_says_where(
    stub: Any, call: Any, reply: Any, body: Any, place: str
) -> None:
    stub.script = [reply(body=body)]
    with pytest.raises(InvalidResponseError) as caught:
        call(stub.url, "search", "bees")
    assert place in str(caught.value)


def test_a_failure_page_of_something_in_between_is_an_error_of_its_status(
    stub: Any, call: Any, reply: Any
) -> None:
    stub.script = [reply(502, b"<html>Bad gateway</html>")]
    with pytest.raises(InternalServiceError) as caught:
        call(stub.url, "search", "bees", client=QUICK)
    assert (caught.value.status, caught.value.code, caught.value.request_id) == (502, "service_failed", "")
    assert "Bad gateway" in str(caught.value)


def test_a_body_that_lies_about_its_encoding_is_a_client_error(stub: Any, call: Any, reply: Any) -> None:
    stub.script = [reply(body=b"not gzip", headers={"Content-Encoding": "gzip"})]
    with pytest.raises(ClientError):
        call(stub.url, "search", "bees")


def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else(stub: Any, call: Any, reply: Any) -> None:
    stub.script = [reply(307, {}, {"Location": f"{stub.url}/elsewhere"})]
    with pytest.raises(InvalidResponseError, match="no redirect"):
        call(stub.url, "search", "bees", client={"api_key": "secret"})
    assert [seen.path for seen in stub.seen] == ["/v1/search"]
