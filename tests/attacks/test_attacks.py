"""Each attack for a moment, against the toy index; `python -m tests.attacks` measures them for longer.

Figures here depend on no speed: what is checked is that others are answered, and what is refused.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.attacks.attacks import ATTACKS
from tests.attacks.harness import KEYS, ROOT, Plain, Service, hostile, serving
from tests.attacks.requests import explain_batch, filter_batch, plain_batch, prefix_batch, rerank_search

PATIENT = ("--default-timeout-ms", "30000", "--max-timeout-ms", "60000")


@pytest.fixture(scope="module")
def service(rerank_index: Path) -> Iterator[Service]:
    flags = ("--workers", "2", "--rate-limit", "20", "--rate-burst", "200", *PATIENT)
    with serving(rerank_index, *flags, keys=True) as running:
        yield running


def send(service: Service, body: dict[str, object], key: str = "plain") -> httpx.Response:
    headers = {"X-API-Key": KEYS[key]}
    return httpx.post(f"{service.url}/search/batch", json=body, headers=headers, timeout=60)


def test_a_batch_that_explains_thousands_of_hits_is_refused(service: Service) -> None:
    refused = [result["problem"]["errors"] for result in send(service, explain_batch()).json()["results"]]
    assert {error["pointer"] for errors in refused for error in errors} == {"/explain"}
    many = send(service, explain_batch(4, 20))
    assert (many.status_code, many.json()["errors"][0]["pointer"]) == (422, "/searches")


def test_filters_are_bounded_over_the_whole_batch(service: Service) -> None:
    refused = send(service, filter_batch("lang"))
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert "61504 terms in total, expected at most 4000" in refused.json()["detail"]
    assert send(service, filter_batch("lang", 4)).status_code == 200


BATCHES = (explain_batch(3, 20), plain_batch(16), prefix_batch(), filter_batch("lang", 4))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/search/batch", body) for body in BATCHES),
        ("/search", rerank_search()),
        ("/suggest?q=a&k=20", None),
    ],
)
def test_plain_searches_are_answered_beside_hostile_ones(
    service: Service, path: str, body: dict[str, object] | None
) -> None:
    plain = Plain(service.url, pace_s=0.1)
    with hostile(service.url, path, body) as statuses:
        plain.ask(2.0)
    assert set(plain.statuses) == {200}
    assert set(statuses) <= {200, 429}


def test_the_loop_lag_is_a_gauge(service: Service) -> None:
    text = httpx.get(f"{service.url}/metrics", timeout=60).text
    assert "# TYPE glow_loop_lag_seconds gauge" in text


# In an exchange a worker serves until its successor does, so three are ready for a moment; how long depends on the machine.
@pytest.mark.parametrize(("attack", "ready"), [("killed-worker", 2), ("hang-up", 3), ("damaged-file", 1)])
def test_a_worker_that_starts_again_does_not_accept_before_it_can_answer(
    toy_index: Path, attack: str, ready: int
) -> None:
    figures = ATTACKS[attack](toy_index, 8.0, ROOT)
    lost = figures["statuses"].pop(0, 0)  # a connection that the killed worker had accepted
    assert set(figures["statuses"]) == {200}
    assert lost <= (0 if attack == "hang-up" else 4)
    assert figures["readyz"]["status"] == 200
    assert figures["readyz"]["workers"]["desired"] == 2
    assert figures["readyz"]["workers"]["ready"] <= ready
