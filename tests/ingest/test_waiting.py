"""Writes that wait for space in the log, or until all workers serve them, and delay nobody else."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest

from glow.artifact import IndexRoot
from glow.ingest import INGEST_FOLDER
from glow_index_builder.ingest import Ingester, IngestOptions
from glow_service.live.workers import WorkerGroup, WorkerStatus
from tests.ingest.conftest import WRITE, MakeRoot, log_bytes, serving_writes
from tests.made_index import stages
from tests.until import until


@pytest.fixture
def root(root_of: MakeRoot) -> IndexRoot:
    return root_of(30)


def post(http: httpx.Client, body: Any, query: str = "") -> httpx.Response:
    return http.post(f"/documents{query}", json=body, headers=WRITE)


def test_a_full_log_is_a_429_at_once(root: IndexRoot) -> None:
    with serving_writes(root, ingest_bytes=65_536) as http:
        body = {"documents": [{"_id": f"d{each}", "text": "words " * 500} for each in range(10)]}
        answers = [post(http, body) for _ in range(4)]
        assert [each.status_code for each in answers] == [202, 202, 429, 429]
        assert log_bytes(root) <= 65_536
        assert answers[-1].json()["code"] == "ingest_full"
        assert "Retry-After" in answers[-1].headers
        assert http.post("/search", json={"query": "owls"}).status_code == 200


def test_many_who_wait_hold_up_nobody(root: IndexRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """More wait than the service works on at once, over a log of eleven megabytes, which nobody applies."""
    monkeypatch.setattr("glow_service.writes.MAX_WAITING", 20)
    large = {"documents": [{"_id": f"l/{each}", "text": "words " * 2_000} for each in range(90)]}
    with serving_writes(root, max_in_flight=8) as http:
        for _ in range(10):
            assert post(http, large).status_code == 202
        quiet = _p99(http)
        with ExitStack() as waiting:
            for number in range(20):
                waiting.enter_context(_wait(http, number))
                until(lambda number=number: _accepted(root) == number + 1, within_s=10)
            before = log_bytes(root)
            refused = post(http, {"_id": "m", "text": "x"}, "?wait=visible&wait_s=0.1")
            assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
            assert "Retry-After" in refused.headers and log_bytes(root) == before  # nothing was written
            assert _p99(http) < 3 * quiet + 0.02
        # Who leaves no longer waits.
        until(lambda: post(http, {"_id": "m", "text": "x"}, "?wait=visible&wait_s=0.1").status_code == 202)


def _wait(http: httpx.Client, number: int) -> socket.socket:
    """Sends a write that waits, and reads nothing."""
    address, body = urlsplit(str(http.base_url)), orjson.dumps({"_id": f"w/{number}", "text": "a wombat"})
    connection = socket.create_connection((address.hostname, address.port), timeout=30)
    head = "POST /documents?wait=visible&wait_s=600 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"X-API-Key: {WRITE['X-API-Key']}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def _accepted(root: IndexRoot) -> int:
    log = b"".join(path.read_bytes() for path in (root.path / INGEST_FOLDER / "log").glob("*.log"))
    return log.count(b'"_id": "w/')


def _p99(http: httpx.Client) -> float:
    taken = []
    for number in range(100):
        began = time.perf_counter()
        assert http.post("/search", json={"query": f"owls {number} {began}"}).status_code == 200
        taken.append(time.perf_counter() - began)
    return sorted(taken)[-2]


def test_every_replica_tells_the_state_of_every_write_and_waits_for_its_own_workers(
    root: IndexRoot, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first_version = tmp_path / "log", root.current()
    options = IngestOptions(index_root=root.path, model=toy_model, threads=1, ingest_folder=str(log))
    with (
        serving_writes(root, ingest_folder=str(log)) as one,
        serving_writes(root, ingest_folder=str(log)) as two,
    ):
        operation = post(one, {"_id": "n/1", "text": "an ocelot in the snow"}).json()["operation"]

        def state(http: httpx.Client) -> Any:
            return http.get(f"/operations/{operation}", headers=WRITE).json()["state"]

        assert [state(one), state(two)] == ["waiting", "waiting"]
        assert Ingester(options, stages()).apply_waiting() == 1
        until(lambda: [state(one), state(two)] == ["visible", "visible"])
        assert two.get("/documents/n/1").status_code == 200
        unknown = operation.rpartition("-")[0] + "-9"
        assert two.get(f"/operations/{unknown}", headers=WRITE).status_code == 422
        behind = [WorkerStatus(1, 1, version, "", "") for version in (root.current(), first_version)]
        monkeypatch.setattr(WorkerGroup, "statuses", lambda _: behind)
        assert state(one) == "applied"
        waited = post(one, {"_id": "n/2", "text": "an ocelot"}, "?wait=visible&wait_s=0.3")
        assert (waited.status_code, waited.json()["state"]) == (202, "waiting")
    assert not (root.path / INGEST_FOLDER).exists()
