"""A candidate in the shadow: what it would answer is measured, and nobody waits for it."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from glow_service.fragment import ResultFragment
from glow_service.live.shadow import MAX_WAITING, mean_difference, overlap
from glow_service.search import CheckedSearch, check_search

Serve = Callable[..., AbstractContextManager[Any]]
Until = Callable[..., None]


def count(served: Any, outcome: str) -> float:
    return float(served.metric(f'glow_shadow_searches_total{{outcome="{outcome}"}}'))


def has_candidate(served: Any, name: str) -> bool:
    return bool(served.metric(f'glow_shadow_info{{version="{name}"}}'))


def test_a_candidate_of_the_same_documents_agrees_and_one_of_others_does_not(
    versions: Any, serve: Serve, until: Until
) -> None:
    versions.add("a2")
    with serve(shadow_version="newest", shadow_sample_rate=1.0) as served:
        until(lambda: has_candidate(served, "a2"))
        for retriever in ("dense", "lexical", "hybrid"):
            assert (
                served.search(retriever=retriever, explain=True, facets=[{"field": "lang"}]).status_code
                == 200
            )
        until(lambda: count(served, "compared") == 3)
        assert served.metric("glow_shadow_overlap_sum") == 3
        assert served.metric("glow_shadow_score_difference_sum") == pytest.approx(0, abs=1e-5)
        assert served.metric("glow_shadow_seconds_count") == 3
        versions.add("b1")
        until(lambda: has_candidate(served, "b1"))
        assert not has_candidate(served, "a2")
        assert served.search().json()["index"]["version"] == "a1"
        until(lambda: count(served, "compared") == 4)
        assert served.metric("glow_shadow_overlap_sum") == 3
        versions.publish("b1")  # what is live is no candidate
        until(lambda: not has_candidate(served, "b1"))
        assert served.search().status_code == 200
        until(lambda: served.metric("glow_index_versions_open") == 1)
        assert count(served, "compared") == 4


def test_a_candidate_that_cannot_be_opened_costs_a_line_and_a_count(
    versions: Any, serve: Serve, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    (versions.add("b1") / "vectors.faiss").write_bytes(b"")
    with serve(shadow_version="b1", shadow_sample_rate=1.0) as served:
        until(lambda: count(served, "failed") == 1)
        assert served.search().status_code == 200
        assert served.http.get("/readyz").status_code == 200
        assert not has_candidate(served, "b1")
    (line,) = [line for line in caplog.records if line.message == "candidate refused"]
    assert line.fields["code"] == "artifact_damaged"  # type: ignore[attr-defined]


def test_a_full_line_drops_and_a_share_is_a_share(
    versions: Any, serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.add("a2")
    gate = threading.Event()

    def check_later(*arguments: Any) -> CheckedSearch:
        gate.wait(60)
        return check_search(*arguments)

    monkeypatch.setattr("glow_service.live.shadow.check_search", check_later)
    with serve(shadow_version="a2", shadow_sample_rate=0.5) as served:
        until(lambda: has_candidate(served, "a2"))
        shadow, result = served.service.shadow, ResultFragment(b'"hits":[]')
        ids = [random.Random(number).randbytes(8).hex() for number in range(2_000)]  # noqa: S311 - no secrets
        started = time.perf_counter()
        for request_id in ids:
            shadow.offer(request_id, {"query": "honey bees"}, result)
        assert time.perf_counter() - started < 0.5  # nobody waits for the one that is compared
        gate.set()
        until(lambda: count(served, "compared") >= MAX_WAITING)
        until(shadow._waiting.empty)
        dropped, compared = count(served, "dropped"), count(served, "compared")
        assert dropped > 500
        assert dropped + compared == pytest.approx(1_000, abs=100)


def test_what_the_candidate_cannot_do_is_counted_as_failed(versions: Any, serve: Serve, until: Until) -> None:
    versions.add("a2")
    with serve(shadow_version="a2", shadow_sample_rate=1.0) as served:
        until(lambda: has_candidate(served, "a2"))
        body = {"query": "bees", "filter": {"field": "of another index", "eq": "en"}}
        served.service.shadow.offer("a request", body, ResultFragment(b'"hits":[]'))
        served.service.shadow.offer("another", {"query": "bees"}, ResultFragment(b"no JSON"))
        until(lambda: count(served, "failed") == 2)
        assert served.search().status_code == 200
        until(lambda: count(served, "compared") == 1)


def test_overlap_is_of_the_longer_list_and_differences_of_what_both_found() -> None:
    assert overlap({}, {}) == 1.0
    assert overlap({"a": 1.0}, {}) == 0.0
    assert overlap({"a": 1.0, "b": 0.5}, {"b": 0.25, "c": 0.1, "d": 0.0, "a": 0.0}) == 0.5
    assert mean_difference({"a": 1.0, "b": 0.5}, {"b": 0.25, "a": 0.5}) == pytest.approx(0.375)
    assert mean_difference({"a": 1.0}, {"b": 1.0}) is None
