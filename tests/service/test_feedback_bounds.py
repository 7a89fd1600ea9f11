"""Nobody fills the log of feedback: ids of searches that nobody was answered with are refused, and each person has a bound."""

import hashlib
import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from glow.client import GlowClient
from glow.feedback import read_feedback
from glow.query_log import read_query_log
from glow_service.access import RequestIds, make_key
from glow_service.app import create_app
from glow_service.settings import Settings
from glow_service.state import client_limits
from tests.attacks.harness import serving, until

INVENTED = 5_000
AT_ONCE = 50
"""Requests that are sent before the first answer is read; the service takes 65."""
ServeApp = Callable[[FastAPI], AbstractContextManager[httpx.Client]]
Start = Callable[..., AbstractContextManager[httpx.Client]]


@pytest.fixture
def start(serve_app: ServeApp, toy_index: Path) -> Start:
    """Serves the toy index with these settings from a thread, and waits until it is ready."""

    @contextmanager
    def started(**settings: Any) -> Iterator[httpx.Client]:
        with serve_app(create_app(Settings(index_root=toy_index, **settings), lambda: None)) as http:
            yield http

    return started


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
    near = [
        plain,
        f"{plain}.",
        f".{signature}",
        signature,
        f"{plain}x.{signature}",
        f"{plain}.{signature[:-1]}",
    ]
    near += [
        f"{plain}.{signature.upper()}x",
        f"{signed}.{signature}",
        "é.ü",
        f"{plain}.{'0' * len(signature)}",
    ]
    yield from near
    for _ in range(INVENTED - len(near)):
        yield f"{secrets.token_hex(8)}.{secrets.token_hex(12)}"


def test_invented_searches_write_nothing_and_honest_clicks_are_kept(toy_index: Path, tmp_path: Path) -> None:
    log, queries = tmp_path / "f", tmp_path / "q"
    flags = ("--feedback-log", str(log), "--query-log", str(queries), "--workers", "2")
    with serving(toy_index, *flags) as service:
        with GlowClient(service.url) as client:
            found = client.search("bees")
        for _ in range(
            8
        ):  # over new connections: the worker that answered the search is not always the one that is told
            with GlowClient(service.url) as client:
                client.feedback(found.request_id, found.hits[0].id)
        assert until(lambda: len(list(read_feedback(log))) == 8, 60)
        before = log.stat().st_size
        statuses = pour(service.url, list(clicks(invented(found.request_id))))
        assert len(statuses) == INVENTED and set(statuses) == {b"422"}
        with GlowClient(service.url) as client:
            client.feedback(found.request_id, found.hits[1].id, "like")
        assert until(lambda: len(list(read_feedback(log))) == 9, 60)
        time.sleep(0.5)
        (last,) = [each for each in read_feedback(log) if each.kind == "like"]
        assert log.stat().st_size - before == len(json.dumps(last.values(), separators=(",", ":"))) + 1
        assert until(lambda: bool(list(read_query_log(queries))), 60)
        (shown,) = read_query_log(queries)
        assert {each.request_id for each in read_feedback(log)} == {shown.request_id}
        metrics = httpx.get(f"{service.url}/metrics").text
        assert f'glow_feedback_refused_total{{reason="unknown_request_id"}} {INVENTED}.0' in metrics
    assert (tmp_path / "f.key").stat().st_mode & 0o077 == 0


def test_tracing_keeps_the_id_that_a_client_gave(start: Start, tmp_path: Path) -> None:
    """As a proxy that numbers requests: header, logs and problems have its id as it is; the answer's comes back with a signature."""
    with start(feedback_log=str(tmp_path / "f"), query_log=str(tmp_path / "q")) as http:
        for number, (path, body) in enumerate(
            [("/search", {"query": "bees"}), ("/search/batch", {"searches": [{"query": "bees"}]})]
        ):
            given = f"trace.{number}:{'x' * 119}"
            answer = http.post(path, json=body, headers={"X-Request-ID": given})
            assert answer.headers["x-request-id"] == given
            request_id = answer.json()["request_id"]
            assert request_id.rpartition(".")[0] == given
            hit = (answer.json().get("results") or [answer.json()])[0]["hits"][0]
            sent = {"request_id": request_id, "id": hit["id"], "kind": "click"}
            assert http.post("/feedback", json=sent).status_code == 202
            refused = http.post(
                "/feedback", json={**sent, "request_id": given}, headers={"X-Request-ID": given}
            )
            assert (refused.status_code, refused.json()["code"]) == (422, "unknown_request_id")
            assert refused.json()["errors"][0]["pointer"] == "/request_id"
            assert refused.json()["request_id"] == given
    noted = {each.request_id for each in read_feedback(tmp_path / "f")}
    assert noted == {each.request_id for each in read_query_log(tmp_path / "q")}
    assert len(noted) == 2 and not any("." in each.removeprefix("trace.") for each in noted)


def test_one_person_has_a_bound_and_another_one_is_not_kept_out(start: Start, tmp_path: Path) -> None:
    with start(feedback_log=str(tmp_path / "f"), feedback_per_hour=20) as http:
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


def test_each_user_of_a_key_has_a_bound(start: Start, tmp_path: Path) -> None:
    key, entry = make_key("name-of-the-key")
    with start(feedback_log=str(tmp_path / "f"), feedback_per_hour=3, api_keys=entry) as http:
        http.headers["X-API-Key"] = key
        # Whoever has a key is trusted not to invent ids.
        sent = {"request_id": "r", "id": "d1", "kind": "click"}
        for user in ("name-of-ann", "name-of-bob"):
            answers = [http.post("/feedback", json={**sent, "user": user}).status_code for _ in range(5)]
            assert answers == [202] * 3 + [429] * 2
        request_id = http.post("/search", json={"query": "bees"}, headers={"X-Request-ID": "mine"}).json()[
            "request_id"
        ]
        assert request_id == "mine"
    text = (tmp_path / "f").read_text()
    assert text.count("\n") == 6 and "name-of" not in text and "127.0.0.1" not in text


def test_the_log_rotates_as_the_query_log_does(start: Start, tmp_path: Path) -> None:
    with start(feedback_log=str(tmp_path / "f"), query_log_bytes=4_096, query_log_files=2) as http:
        request_id = http.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "d" * 500, "kind": "click"}
        for _ in range(30):
            assert http.post("/feedback", json=sent).status_code == 202
    logs = sorted(path.name for path in tmp_path.glob("f*") if ".salt-" not in path.name)
    assert logs == ["f", "f.1", "f.2", "f.key"]
    assert all(
        path.stat().st_size <= 4_096 and path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.glob("f*")
    )


def test_replicas_know_each_others_searches_by_a_secret_that_they_share(start: Start, tmp_path: Path) -> None:
    def replica(name: str, key: str = "") -> AbstractContextManager[httpx.Client]:
        log = tmp_path / name
        log.mkdir()
        return start(feedback_log=str(log / "f"), feedback_key=key)

    shared = "a secret of all replicas"
    with replica("a", shared) as one, replica("b", shared) as two, replica("c") as stranger:
        request_id = one.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "d1", "kind": "click"}
        assert [each.post("/feedback", json=sent).status_code for each in (one, two, stranger)] == [
            202,
            202,
            422,
        ]
    assert not (tmp_path / "a" / "f.key").exists()


@pytest.mark.parametrize("found", [b"", b"short"])
def test_a_key_file_that_holds_none_is_not_used(found: bytes, start: Start, tmp_path: Path) -> None:
    (tmp_path / "f.key").write_bytes(found)
    with start(feedback_log=str(tmp_path / "f")) as http:
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
    assert ids.read(signed) == "r.1"
    assert RequestIds(b"l" * 32).read(signed) is None
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
    assert len(limiter) == 100
    assert limiter.take("person 999") > 0
    off = client_limits(Settings(index_root=tmp_path, feedback_per_hour=0))
    assert off.feedback is None and off.requests is None
