"""Clicks and judgments over real HTTP: who may send them, what is kept of the sender, and how many fill the log."""

import hashlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from glow.client import GlowClient, NotFoundError
from glow.feedback import Feedback, read_feedback
from glow.query_log import SkippedLines, read_query_log
from glow_service.access import RequestIds, make_key
from glow_service.settings import Settings
from glow_service.state import client_limits
from glow_service.telemetry import FeedbackLog
from glow_service.telemetry.metrics import Metrics
from tests.attacks.harness import serving
from tests.service.asking import Serve
from tests.until import until

DAY_S = 86_400


def lines(path: Path, count: int) -> list[Feedback]:
    """The log, once it has so many lines."""
    until(lambda: len(list(read_feedback(path))) >= count)
    return list(read_feedback(path))


def test_what_was_clicked_is_noted_beside_what_was_shown(toy_index: Path, tmp_path: Path) -> None:
    path, queries = tmp_path / "feedback.jsonl", tmp_path / "queries.jsonl"
    flags = ("--feedback-log", str(path), "--query-log", str(queries), "--workers", "2")
    with serving(toy_index, *flags) as service:
        with GlowClient(service.url) as client:
            found = client.search("bees")
            client.feedback(found.request_id, found.hits[0].id, rank=1)
            client.feedback(found.request_id, found.hits[0].id, rank=1, dwell_s=12.5, user="somebody")
            client.feedback(found.request_id, found.hits[1].id, "dislike")
        noted = lines(path, 3)
        # Two workers write in whatever order.
        clicks_and_more = {("click", 1, None), ("click", 1, 12.5), ("dislike", None, None)}
        assert {(each.kind, each.rank, each.dwell_s) for each in noted} == clicks_and_more
        # Without a key nobody can pretend to be another; what is written says nothing of an address.
        assert len({each.source for each in noted}) == 1 and len(noted[0].source) == 16
        assert "127.0.0.1" not in path.read_text() and "somebody" not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
        until(lambda: list(read_query_log(queries)))  # another worker's, which writes when it likes
        (shown,) = read_query_log(queries)
        assert {each.request_id for each in noted} == {shown.request_id}
        assert {each.id for each in noted if each.kind == "click"} == {shown.hits[0]}
        assert 'glow_feedback_total{kind="click"} 2.0' in httpx.get(f"{service.url}/metrics").text
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
    assert one == again and len({one, two, other, none}) == 4


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
    headers = {"Content-Type": "application/json"}
    large = httpx.post(f"{feedback_service}/feedback", content=b"x" * 5_000, headers=headers)
    assert large.status_code == 413


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


def test_a_mark_lasts_as_long_as_its_salt_and_is_everybodys(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "feedback.jsonl"
    now = [100 * DAY_S]
    monkeypatch.setattr("glow_service.telemetry.query_log.time.time", lambda: now[0])
    for days in (0, 5, 20, 40):  # spans of 30 days: 100 to 119, and 120 to 149
        now[0] = (100 + days) * DAY_S
        logs = [FeedbackLog(Metrics(), str(path), salt_days=30) for _ in range(2)]
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

INVENTED = 5_000
AT_ONCE = 50
"""Requests that are sent before the first answer is read; the service takes 65."""


def clicks(request_ids: Iterator[str]) -> Iterator[bytes]:
    for request_id in request_ids:
        body = json.dumps({"request_id": request_id, "id": "d42", "kind": "click"}).encode()
        head = f"POST /feedback HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        yield head.encode() + body


def pour(url: str, requests: list[bytes]) -> list[bytes]:
    """Sends requests over one connection, many at once; returns their status lines."""
    place = urlsplit(url)
    statuses: list[bytes] = []
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        answers = connection.makefile("rb")
        for start in range(0, len(requests), AT_ONCE):
            some = requests[start : start + AT_ONCE]
            connection.sendall(b"".join(some))
            for _ in some:
                statuses.append(answers.readline().split()[1])
                length = 0
                while (line := answers.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                answers.read(length)
    return statuses


def invented(signed: str) -> Iterator[str]:
    """Ids that no search was answered with, some of them near to one."""
    plain, _, signature = signed.rpartition(".")
    near = [plain, f"{plain}.", f".{signature}", signature, f"{plain}x.{signature}", f"{signed}.{signature}"]
    near += [f"{plain}.{end}" for end in (signature[:-1], f"{signature.upper()}x", "0" * len(signature))]
    near += ["é.ü"]
    yield from near
    for _ in range(INVENTED - len(near)):
        yield f"{secrets.token_hex(8)}.{secrets.token_hex(12)}"


def test_invented_searches_write_nothing_and_honest_clicks_are_kept(toy_index: Path, tmp_path: Path) -> None:
    log, queries = tmp_path / "f", tmp_path / "q"
    flags = ("--feedback-log", str(log), "--query-log", str(queries), "--workers", "2")
    with serving(toy_index, *flags) as service:
        with GlowClient(service.url) as client:
            found = client.search("bees")
        for _ in range(8):  # over new connections: not always to the worker that answered the search
            with GlowClient(service.url) as client:
                client.feedback(found.request_id, found.hits[0].id)
        until(lambda: len(list(read_feedback(log))) == 8, 60)
        before = log.stat().st_size
        statuses = pour(service.url, list(clicks(invented(found.request_id))))
        assert len(statuses) == INVENTED and set(statuses) == {b"422"}
        with GlowClient(service.url) as client:
            client.feedback(found.request_id, found.hits[1].id, "like")
        until(lambda: len(list(read_feedback(log))) == 9, 60)
        time.sleep(0.5)
        (last,) = [each for each in read_feedback(log) if each.kind == "like"]
        assert log.stat().st_size - before == len(json.dumps(last.values(), separators=(",", ":"))) + 1
        until(lambda: bool(list(read_query_log(queries))), 60)
        (shown,) = read_query_log(queries)
        assert {each.request_id for each in read_feedback(log)} == {shown.request_id}
        metrics = httpx.get(f"{service.url}/metrics").text
        assert f'glow_feedback_refused_total{{reason="unknown_request_id"}} {INVENTED}.0' in metrics
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


def test_one_person_has_a_bound_and_another_one_is_not_kept_out(serve: Serve, tmp_path: Path) -> None:
    with serve(feedback_log=str(tmp_path / "f"), feedback_per_hour=20) as http:
        request_id = http.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "d1", "kind": "click"}

        def tell(address: str) -> httpx.Response:
            return http.post("/feedback", json=sent, headers={"X-Forwarded-For": address})

        answers = [tell("10.0.0.1") for _ in range(60)]
        assert [each.status_code for each in answers] == [202] * 20 + [429] * 40
        refused = answers[-1]
        assert refused.json()["code"] == "rate_limited" and "feedback_per_hour" in refused.json()["detail"]
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


def test_each_user_of_a_key_has_a_bound(serve: Serve, tmp_path: Path) -> None:
    key, entry = make_key("name-of-the-key")
    with serve(feedback_log=str(tmp_path / "f"), feedback_per_hour=3, api_keys=entry) as http:
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


def test_the_log_rotates_as_the_query_log_does(serve: Serve, tmp_path: Path) -> None:
    with serve(feedback_log=str(tmp_path / "f"), query_log_bytes=4_096, query_log_files=2) as http:
        request_id = http.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "d" * 500, "kind": "click"}
        for _ in range(30):
            assert http.post("/feedback", json=sent).status_code == 202
    logs = sorted(path.name for path in tmp_path.glob("f*") if ".salt-" not in path.name)
    assert logs == ["f", "f.1", "f.2", "f.key"]
    states = [path.stat() for path in tmp_path.glob("f*")]
    assert all(state.st_size <= 4_096 and state.st_mode & 0o777 == 0o600 for state in states)


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


def test_a_secret_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="feedback_key has 5 characters, expected at least 16"):
        Settings(index_root=tmp_path, feedback_key="short")


def test_the_signature_is_a_keyed_hash_of_the_id() -> None:
    ids = RequestIds(b"k" * 32)
    signed = ids.signed("r.1")
    assert ids.read(signed) == "r.1" and RequestIds(b"l" * 32).read(signed) is None
    assert signed != RequestIds(b"l" * 32).signed("r.1")
    assert signed.rpartition(".")[2] != hashlib.sha256(b"r.1").hexdigest()[:24]
    off = RequestIds()
    assert (off.signed("r"), off.read("r"), off.read("invented")) == ("r", "r", "invented")


def test_many_people_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glow_service.state.MAX_CLIENTS", 100)
    limiter = client_limits(Settings(index_root=tmp_path, feedback_per_hour=1)).feedback
    assert limiter is not None
    for number in range(1_000):
        assert limiter.take(f"person {number}") == 0
    assert len(limiter) == 100 and limiter.take("person 999") > 0
    off = client_limits(Settings(index_root=tmp_path, feedback_per_hour=0))
    assert off.feedback is None and off.requests is None
