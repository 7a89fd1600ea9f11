"""Clicks and judgments over real HTTP: who may send them, what is kept of the sender, and how many fill the log."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.query_log import Feedback, SkippedLines, read_feedback, read_query_log
from glow_service import state
from glow_service.access import RequestIds, make_key
from glow_service.settings import Settings
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import FeedbackLog
from tests.attacks.harness import serving
from tests.service.asking import Serve, assert_problem

DAY_S = 86_400


def test_what_was_clicked_is_noted_beside_what_was_shown(serve: Serve, tmp_path: Path) -> None:
    path, queries = tmp_path / "f", tmp_path / "q"
    with serve(feedback_log=str(path), query_log=str(queries)) as http:
        found = http.post("/search", json={"query": "bees"}).json()
        first, second = (hit["id"] for hit in found["hits"][:2])
        for more in (
            {"id": first, "kind": "click", "rank": 1},
            {"id": first, "kind": "click", "rank": 1, "dwell_s": 12.5, "user": "somebody"},
            {"id": second, "kind": "dislike"},
        ):
            assert http.post("/feedback", json={"request_id": found["request_id"], **more}).status_code == 202
        assert 'glow_feedback_total{kind="click"} 2.0' in http.get("/metrics").text
        assert http.get("/info").json()["feedback"] is True
    noted = list(read_feedback(path))
    assert [(each.id, each.kind, each.rank, each.dwell_s) for each in noted] == [
        (first, "click", 1, None),
        (first, "click", 1, 12.5),
        (second, "dislike", None, None),
    ]
    # Without a key nobody can pretend to be another; what is written says nothing of an address.
    assert len({each.source for each in noted}) == 1 and len(noted[0].source) == 16
    assert "127.0.0.1" not in path.read_text() and "somebody" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    (shown,) = read_query_log(queries)
    assert {each.request_id for each in noted} == {shown.request_id} and shown.hits[0] == first


def test_a_key_tells_its_users_apart(serve: Serve, tmp_path: Path) -> None:
    keys = [make_key(name) for name in ("one", "two")]
    hashes = ",".join(entry for _, entry in keys)
    with serve(feedback_log=str(tmp_path / "f"), api_keys=hashes) as http:
        assert http.post("/feedback", json={}).status_code == 401
        for number, user in ((0, "a"), (0, "b"), (0, "a"), (1, "a"), (0, None)):
            body = {"request_id": "r", "id": "d", "kind": "click"} | ({"user": user} if user else {})
            assert (
                http.post("/feedback", json=body, headers={"X-API-Key": keys[number][0]}).status_code == 202
            )
    one, two, again, other, none = (each.source for each in read_feedback(tmp_path / "f"))
    assert one == again and len({one, two, other, none}) == 4


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"kind": None}, "/kind"),
        ({"kind": "buy"}, "/kind"),
        ({"request_id": ""}, "/request_id"),
        ({"rank": 0}, "/rank"),
        ({"dwell_s": -1}, "/dwell_s"),
        ({"page": 1}, "/page"),
    ],
)
def test_what_is_no_feedback_is_refused(more: Any, pointer: str, feedback_service: httpx.Client) -> None:
    body = {"request_id": "r", "id": "d", "kind": "click", **more}
    problem = assert_problem(feedback_service.post("/v1/feedback", json=body), 422, "invalid_request")
    assert problem.errors[0].pointer == pointer


@pytest.fixture(scope="module")
def feedback_service(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serve(feedback_log=str(tmp_path_factory.mktemp("feedback") / "f")) as client:
        yield client


def test_a_mark_lasts_as_long_as_its_salt_and_is_everybodys(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "feedback.jsonl"
    now = [100 * DAY_S]
    monkeypatch.setattr("glow_service.telemetry.query_log.time.time", lambda: now[0])
    for days in (0, 5, 20, 40):  # spans of 30 days: 100 to 119, and 120 to 149
        now[0] = (100 + days) * DAY_S
        logs = [FeedbackLog(Metrics(), str(path)) for _ in range(2)]
        click = (Feedback("r", "d", "click"), "me")
        threads = [threading.Thread(target=each.log, args=click) for each in logs]
        for thread in threads:
            thread.start()
        for log, thread in zip(logs, threads, strict=True):
            thread.join()
            log.close()
    marks = [each.source for each in read_feedback(path)]
    assert len(marks) == 8 and len(set(marks[:4])) == len(set(marks[4:])) == 1
    assert marks[0] != marks[4]
    assert len(list(tmp_path.glob("feedback.jsonl.salt-*"))) == 1  # nobody can make an older mark again


def test_a_line_that_is_none_is_skipped_and_named(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    known = Feedback("r", "d", "click", time="t", source="s", period="p")
    good = json.dumps(known.values())
    path.write_text(f"{good}\n{good[:-1]}")
    assert list(read_feedback(path)) == [known]
    changed = (good.replace("click", "buy"), good.replace('"d"', "7"), good[:-1] + ', "dwell_s": "x"}')
    for bad in ("{}", "[]", *changed):
        skipped = SkippedLines()
        path.write_text(f"{good}\n{bad}\n{good}\n")
        assert list(read_feedback(path, skipped)) == [known, known]
        assert (skipped.count, skipped.first[:40]) == (1, "f.jsonl:2: not a line of a feedback log:")


# Nobody fills the log: ids of searches that nobody was answered with are refused, and each person has a bound.


def invented(signed: str) -> list[str]:
    """Ids that no search was answered with, near to one and far from it."""
    plain, _, signature = signed.rpartition(".")
    near = [plain, f"{plain}.", f".{signature}", signature, f"{plain}x.{signature}", f"{signed}.{signature}"]
    near += [f"{plain}.{end}" for end in (signature[:-1], f"{signature.upper()}x", "0" * len(signature))]
    return [*near, "é.ü", *(f"{secrets.token_hex(8)}.{secrets.token_hex(12)}" for _ in range(10))]


def test_invented_searches_write_nothing_and_clicks_of_any_worker_are_kept(
    toy_index: Path, tmp_path: Path
) -> None:
    log = tmp_path / "f"
    with serving(toy_index, "--feedback-log", str(log), "--workers", "2") as service:
        request_id = httpx.post(f"{service.url}/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "d42", "kind": "click"}
        for _ in range(8):  # a connection each: not always to the worker that answered the search
            assert httpx.post(f"{service.url}/feedback", json=sent).status_code == 202
        with httpx.Client() as client:
            for name in invented(request_id):
                answer = client.post(f"{service.url}/feedback", json={**sent, "request_id": name})
                assert answer.status_code == 422
        metrics = httpx.get(f"{service.url}/metrics").text
        assert 'glow_feedback_refused_total{reason="unknown_request_id"} 20.0' in metrics
    assert len(list(read_feedback(log))) == 8
    assert (tmp_path / "f.key").stat().st_mode & 0o077 == 0


def test_tracing_keeps_the_id_that_a_client_gave(serve: Serve, tmp_path: Path) -> None:
    """As a proxy that numbers requests: header, logs and problems have its id as it is; the answer's comes back with a signature."""
    with serve(feedback_log=str(tmp_path / "f"), query_log=str(tmp_path / "q")) as http:
        one, batch = {"query": "bees"}, {"searches": [{"query": "bees"}]}
        for number, (path, body) in enumerate([("/search", one), ("/search/batch", batch)]):
            given = f"trace.{number}:{'x' * 119}"
            answer = http.post(path, json=body, headers={"X-Request-ID": given})
            assert answer.headers["x-request-id"] == given
            request_id = answer.json()["request_id"]
            assert request_id.rpartition(".")[0] == given
            hit = (answer.json().get("results") or [answer.json()])[0]["hits"][0]
            sent = {"request_id": request_id, "id": hit["id"], "kind": "click"}
            assert http.post("/feedback", json=sent).status_code == 202
            told = {**sent, "request_id": given}
            refused = http.post("/feedback", json=told, headers={"X-Request-ID": given})
            assert (refused.status_code, refused.json()["code"]) == (422, "unknown_request_id")
            assert refused.json()["errors"][0]["pointer"] == "/request_id"
            assert refused.json()["request_id"] == given
    noted = {each.request_id for each in read_feedback(tmp_path / "f")}
    assert noted == {each.request_id for each in read_query_log(tmp_path / "q")}
    assert len(noted) == 2 and not any("." in each.removeprefix("trace.") for each in noted)


def test_one_person_has_a_bound_and_another_one_is_not_kept_out(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FEEDBACK_PER_HOUR", 20)
    with serve(feedback_log=str(tmp_path / "f")) as http:
        request_id = http.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "d1", "kind": "click"}

        def tell(address: str) -> httpx.Response:
            return http.post("/feedback", json=sent, headers={"X-Forwarded-For": address})

        answers = [tell("10.0.0.1") for _ in range(60)]
        assert [each.status_code for each in answers] == [202] * 20 + [429] * 40
        refused = answers[-1]
        assert refused.json()["code"] == "rate_limited"
        assert 170 <= int(refused.headers["Retry-After"]) <= 180  # 3,600 s for 20
        # What is refused for another reason takes nothing of the bound, and a search is none.
        for _ in range(30):
            assert http.post("/feedback", json={**sent, "request_id": "x"}).status_code == 422
        assert [tell("10.0.0.2").status_code for _ in range(21)] == [202] * 20 + [429]
        assert http.post("/search", json={"query": "bees"}).status_code == 200
        metrics = http.get("/metrics").text
        assert 'glow_feedback_refused_total{reason="rate_limited"} 41.0' in metrics
        assert 'glow_rejected_total{reason="rate_limited"} 41.0' in metrics
    assert len(list(read_feedback(tmp_path / "f"))) == 40


def test_each_user_of_a_key_has_a_bound(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FEEDBACK_PER_HOUR", 3)
    key, entry = make_key("name-of-the-key")
    with serve(feedback_log=str(tmp_path / "f"), api_keys=entry) as http:
        http.headers["X-API-Key"] = key
        # Whoever has a key is trusted not to invent ids.
        sent = {"request_id": "r", "id": "d1", "kind": "click"}
        for user in ("name-of-ann", "name-of-bob"):
            answers = [http.post("/feedback", json={**sent, "user": user}).status_code for _ in range(5)]
            assert answers == [202] * 3 + [429] * 2
        answer = http.post("/search", json={"query": "bees"}, headers={"X-Request-ID": "mine"}).json()
        assert answer["request_id"] == "mine"
    text = (tmp_path / "f").read_text()
    assert text.count("\n") == 6 and "name-of" not in text and "127.0.0.1" not in text


def test_replicas_know_each_others_searches_by_a_secret_that_they_share(serve: Serve, tmp_path: Path) -> None:
    def replica(name: str, key: str = "") -> AbstractContextManager[httpx.Client]:
        (tmp_path / name).mkdir()
        return serve(feedback_log=str(tmp_path / name / "f"), feedback_key=key)

    shared = "a secret of all replicas"
    with replica("a", shared) as one, replica("b", shared) as two, replica("c") as stranger:
        request_id = one.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "d1", "kind": "click"}
        statuses = [each.post("/feedback", json=sent).status_code for each in (one, two, stranger)]
        assert statuses == [202, 202, 422]
    assert not (tmp_path / "a" / "f.key").exists()


@pytest.mark.parametrize("found", [b"", b"short"])
def test_a_key_file_that_holds_none_is_not_used(found: bytes, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "f.key").write_bytes(found)
    with serve(feedback_log=str(tmp_path / "f")) as http:
        for request_id in (RequestIds(found or b"\0").signed("r"), "r"):
            sent: dict[str, Any] = {"request_id": request_id, "id": "d1", "kind": "click"}
            assert http.post("/feedback", json=sent).status_code == 422
        sent["request_id"] = http.post("/search", json={"query": "bees"}).json()["request_id"]
        assert http.post("/feedback", json=sent).status_code == 202
    assert len((tmp_path / "f.key").read_bytes()) == 32
    with pytest.raises(ValueError, match="feedback_key has 5 characters, expected at least 16"):
        Settings(index_root=tmp_path, feedback_key="short")
