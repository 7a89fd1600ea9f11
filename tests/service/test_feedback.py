"""Clicks and judgments over real HTTP: who may send them, what is kept of the sender, and how many fill the log."""

import json
import secrets
import threading
from pathlib import Path

import httpx
import pytest

from glow.query_log import Feedback, SkippedLines, read_feedback, read_query_log
from glow_service import state
from glow_service.access import make_key
from glow_service.settings import Settings
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import FeedbackLog
from tests.service.asking import Serve, assert_problem, samples

DAY_S = 86_400
CLICK = {"request_id": "r", "id": "d1", "kind": "click"}


def searched(client: httpx.Client) -> str:
    return str(client.post("/search", json={"query": "bees"}).json()["request_id"])


def send(client: httpx.Client, request_id: str, **headers: str) -> int:
    return client.post("/feedback", json={**CLICK, "request_id": request_id}, headers=headers).status_code


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
        assert samples(http)['glow_feedback_total{kind="click"}'] == 2
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


def test_what_is_no_feedback_is_refused(serve: Serve, tmp_path: Path) -> None:
    faults = {"kind": ("buy", None), "request_id": ("",), "rank": (0,), "dwell_s": (-1,), "page": (1,)}
    with serve(feedback_log=str(tmp_path / "f")) as client:
        for name, value in ((name, value) for name, values in faults.items() for value in values):
            response = client.post("/v1/feedback", json={**CLICK, name: value})
            assert assert_problem(response, 422, "invalid_request").errors[0].pointer == f"/{name}"


def test_a_mark_lasts_as_long_as_its_salt_and_is_everybodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    good = json.dumps(Feedback("r", "d", "click", time="t", source="s", period="p").values())
    changed = (good.replace("click", "buy"), good.replace('"d"', "7"), good[:-1] + ', "dwell_s": "x"}')
    for bad in ("{}", "[]", *changed):
        skipped = SkippedLines()
        (tmp_path / "f").write_text(f"{good}\n{bad}\n{good}\n{good[:-1]}")
        assert len(list(read_feedback(tmp_path / "f", skipped))) == 2
        assert skipped.first.startswith("f:2: not a line of a feedback log:")


# Nobody fills the log: ids of searches that nobody was answered with are refused, and each person has a bound.


def invented(signed: str) -> list[str]:
    """Ids that no search was answered with, near to one and far from it."""
    plain, _, signature = signed.rpartition(".")
    near = [plain, f"{plain}.", f".{signature}", signature, f"{plain}x.{signature}", f"{signed}.{signature}"]
    near += [f"{plain}.{end}" for end in (signature[:-1], f"{signature.upper()}x", "0" * len(signature))]
    return [*near, "é.ü", f"{secrets.token_hex(8)}.{secrets.token_hex(12)}"]


def test_invented_searches_write_nothing_and_clicks_of_any_worker_are_kept(
    serve: Serve, tmp_path: Path
) -> None:
    log = str(tmp_path / "f")
    with serve(feedback_log=log) as one, serve(feedback_log=log) as other:  # as two workers have one log
        request_id = searched(one)
        assert [send(each, request_id) for each in (one, other)] == [202, 202]
        names = invented(request_id)
        assert [send(one, name) for name in names] == [422] * len(names)
        assert samples(one)['glow_feedback_refused_total{reason="unknown_request_id"}'] == len(names)
    assert len(list(read_feedback(tmp_path / "f"))) == 2
    assert (tmp_path / "f.key").stat().st_mode & 0o077 == 0


def test_replicas_know_each_others_searches_by_a_secret_that_they_share(serve: Serve, tmp_path: Path) -> None:
    logs = [tmp_path / name / "f" for name in ("a", "b", "c")]
    for log in logs:
        log.parent.mkdir()
    shared = {"feedback_key": "a secret of all replicas"}
    a, b, c = (str(log) for log in logs)
    with (
        serve(feedback_log=a, **shared) as one,
        serve(feedback_log=b, **shared) as two,
        serve(feedback_log=c) as stranger,
    ):
        request_id = searched(one)
        assert [send(each, request_id) for each in (one, two, stranger)] == [202, 202, 422]
    assert not Path(f"{a}.key").exists()
    with pytest.raises(ValueError, match="feedback_key has 5 characters, expected at least 16"):
        Settings(index_root=tmp_path, feedback_key="short")


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
            assert send(http, request_id) == 202
            refused = http.post(
                "/feedback", json={**CLICK, "request_id": given}, headers={"X-Request-ID": given}
            )
            problem = assert_problem(refused, 422, "unknown_request_id")
            assert problem.errors[0].pointer == "/request_id" and problem.request_id == given
    noted = {each.request_id for each in read_feedback(tmp_path / "f")}
    assert noted == {each.request_id for each in read_query_log(tmp_path / "q")}
    assert len(noted) == 2 and not any("." in each.removeprefix("trace.") for each in noted)


def test_one_person_has_a_bound_and_another_one_is_not_kept_out(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FEEDBACK_PER_HOUR", 5)
    with serve(feedback_log=str(tmp_path / "f")) as http:
        request_id = searched(http)

        def tell(address: str, request_id: str = request_id) -> int:
            return send(http, request_id, **{"X-Forwarded-For": address})

        assert [tell("10.0.0.1") for _ in range(9)] == [202] * 5 + [429] * 4
        refused = http.post(
            "/feedback", json=CLICK | {"request_id": request_id}, headers={"X-Forwarded-For": "10.0.0.1"}
        )
        assert_problem(refused, 429, "rate_limited")
        assert 700 <= int(refused.headers["Retry-After"]) <= 720  # 3,600 s for 5
        # What is refused for another reason takes nothing of the bound, and a search is none.
        assert [tell("10.0.0.2", "x") for _ in range(9)] == [422] * 9
        assert [tell("10.0.0.2") for _ in range(6)] == [202] * 5 + [429]
        assert http.post("/search", json={"query": "bees"}).status_code == 200
        for name in ("glow_feedback_refused_total", "glow_rejected_total"):
            assert samples(http)[f'{name}{{reason="rate_limited"}}'] == 6
    assert len(list(read_feedback(tmp_path / "f"))) == 10


def test_a_key_tells_its_users_apart_and_each_has_a_bound(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FEEDBACK_PER_HOUR", 3)
    keys = [make_key(f"name-of-key-{number}") for number in range(2)]
    with serve(feedback_log=str(tmp_path / "f"), api_keys=",".join(entry for _, entry in keys)) as http:
        assert http.post("/feedback", json={}).status_code == 401
        # Whoever has a key is trusted not to invent ids.
        for key, user in ((0, "name-of-ann"), (0, "name-of-bob"), (1, "name-of-ann"), (0, None)):
            sent = CLICK | ({"user": user} if user else {})
            headers = {"X-API-Key": keys[key][0]}
            answers = [http.post("/feedback", json=sent, headers=headers).status_code for _ in range(5)]
            assert answers == [202] * 3 + [429] * 2
        answer = http.post(
            "/search", json={"query": "bees"}, headers=headers | {"X-Request-ID": "mine"}
        ).json()
        assert answer["request_id"] == "mine"
    sources = [each.source for each in read_feedback(tmp_path / "f")]
    assert len(sources) == 12 and [len(set(sources[at : at + 3])) for at in (0, 3, 6, 9)] == [1] * 4
    assert len(set(sources)) == 4
    text = (tmp_path / "f").read_text()
    assert "name-of" not in text and "127.0.0.1" not in text
