"""Clicks and judgments over real HTTP: who may send them, which data is kept of the sender, and what is refused."""

import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.client import GlowClient, NotFoundError
from glow.feedback import Feedback, read_feedback
from glow.query_log import SkippedLines, read_query_log
from glow_service.access import make_key
from glow_service.telemetry import FeedbackLog
from glow_service.telemetry.metrics import Metrics
from tests.attacks.harness import serving
from tests.until import until

DAY_S = 86_400


def lines(path: Path, count: int) -> list[Feedback]:
    """The log, once it has so many lines."""
    until(lambda: len(list(read_feedback(path))) >= count)
    return list(read_feedback(path))


def test_what_was_clicked_is_noted_beside_what_was_shown(toy_index: Path, tmp_path: Path) -> None:
    path, queries = tmp_path / "feedback.jsonl", tmp_path / "queries.jsonl"
    with serving(
        toy_index, "--feedback-log", str(path), "--query-log", str(queries), "--workers", "2"
    ) as service:
        with GlowClient(service.url) as client:
            found = client.search("bees")
            client.feedback(found.request_id, found.hits[0].id, rank=1)
            client.feedback(found.request_id, found.hits[0].id, rank=1, dwell_s=12.5, user="somebody")
            client.feedback(found.request_id, found.hits[1].id, "dislike")
        noted = lines(path, 3)
        assert {(each.kind, each.rank, each.dwell_s) for each in noted} == {
            ("click", 1, None),
            ("click", 1, 12.5),
            ("dislike", None, None),
        }  # two workers write in whatever order
        # Without a key nobody can pretend to be another; what is written says nothing of an address.
        assert len({each.source for each in noted}) == 1 and len(noted[0].source) == 16
        assert "127.0.0.1" not in path.read_text() and "somebody" not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
        until(lambda: list(read_query_log(queries)))  # another worker's, which writes when it likes
        (shown,) = read_query_log(queries)
        assert {each.request_id for each in noted} == {shown.request_id}
        assert {each.id for each in noted if each.kind == "click"} == {shown.hits[0]}
        metrics = httpx.get(f"{service.url}/metrics").text
        assert 'glow_feedback_total{kind="click"} 2.0' in metrics
        assert httpx.get(f"{service.url}/info").json()["feedback"] is True


def test_a_key_tells_its_users_apart(toy_index: Path, tmp_path: Path) -> None:
    path = tmp_path / "feedback.jsonl"
    keys = [make_key(name) for name in ("one", "two")]
    hashes = ",".join(entry for _, entry in keys)
    with serving(toy_index, "--feedback-log", str(path), "--api-keys", hashes, "--workers", "1") as service:
        assert httpx.post(f"{service.url}/feedback", json={}).status_code == 401
        for number, user in ((0, "a"), (0, "b"), (0, "a"), (1, "a"), (0, None)):
            with GlowClient(service.url, api_key=keys[number][0]) as client:
                client.feedback("r", "d", user=user)
        one, two, again, other, none = (each.source for each in lines(path, 5))
    assert one == again
    assert len({one, two, other, none}) == 4


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"request_id": "r", "id": "d"}, "/kind"),
        ({"request_id": "", "id": "d", "kind": "click"}, "/request_id"),
        ({"request_id": "r", "id": "d", "kind": "buy"}, "/kind"),
        ({"request_id": "r", "id": "d", "kind": "click", "rank": 0}, "/rank"),
        ({"request_id": "r", "id": "d", "kind": "click", "dwell_s": -1}, "/dwell_s"),
        ({"request_id": "r", "id": "d", "kind": "click", "page": 1}, "/page"),
    ],
)
def test_what_is_no_feedback_is_refused(body: Any, pointer: str, feedback_service: str) -> None:
    answer = httpx.post(f"{feedback_service}/v1/feedback", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert (
        httpx.post(
            f"{feedback_service}/feedback", content=b"x" * 5_000, headers={"Content-Type": "application/json"}
        ).status_code
        == 413
    )


@pytest.fixture(scope="module")
def feedback_service(toy_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("feedback") / "feedback.jsonl"
    with serving(toy_index, "--feedback-log", str(path)) as service:
        yield service.url


def test_without_a_log_there_is_no_such_path(toy_index: Path) -> None:
    with serving(toy_index) as service, GlowClient(service.url) as client:
        with pytest.raises(NotFoundError):
            client.feedback("r", "d")
        assert httpx.get(f"{service.url}/info").json()["feedback"] is False


def test_a_mark_lasts_as_long_as_its_salt_and_is_everybodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "feedback.jsonl"
    now = [100 * DAY_S]
    monkeypatch.setattr("glow_service.telemetry.feedback_log.time.time", lambda: now[0])
    for days in (0, 5, 20, 40):  # spans of 30 days: 100 to 119, and 120 to 149
        now[0] = (100 + days) * DAY_S
        logs = [FeedbackLog(Metrics(), str(path), salt_days=30) for _ in range(2)]
        threads = [
            threading.Thread(target=each.log, args=(Feedback("r", "d", "click"), "me")) for each in logs
        ]
        for thread in threads:
            thread.start()
        for log, thread in zip(logs, threads, strict=True):
            thread.join()
            log.close()
    marks = [each.source for each in read_feedback(path)]
    assert len(marks) == 8
    assert len(set(marks[:4])) == len(set(marks[4:])) == 1
    assert marks[0] != marks[4]
    assert len(list(tmp_path.glob("feedback.jsonl.salt-*"))) == 1  # nobody can make an older mark again


def test_a_line_that_is_none_is_skipped_and_named(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    known = Feedback("r", "d", "click", time="t", source="s", period="p")
    good = json.dumps(known.values())
    path.write_text(f"{good}\n{good[:-1]}")
    assert list(read_feedback(path)) == [known]
    bad_lines = (
        "{}",
        "[]",
        good.replace("click", "buy"),
        good.replace('"d"', "7"),
        good[:-1] + ', "dwell_s": "x"}',
    )
    for bad in bad_lines:
        skipped = SkippedLines()
        path.write_text(f"{good}\n{bad}\n{good}\n")
        assert list(read_feedback(path, skipped)) == [known, known]
        assert (skipped.count, skipped.first[:40]) == (1, "f.jsonl:2: not a line of a feedback log:")
