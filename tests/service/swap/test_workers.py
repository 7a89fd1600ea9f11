"""Swaps of several workers, of which one is killed."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow_service.errors import NotReadyError
from glow_service.live.resources import Resources
from glow_service.live.workers import Readiness, WorkerGroup
from glow_service.telemetry.metrics import FOLDER_VARIABLE, Metrics
from tests.until import until

ROOT = Path(__file__).parents[3]


def test_workers_that_have_ended_have_no_standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group = WorkerGroup()
    asked = group.ask()
    assert group.asked() == asked
    group.note("v1", "", asked)
    (standing,) = WorkerGroup().statuses()
    assert (standing.version, standing.refused, standing.request) == ("v1", "", asked)
    for name, content in (
        ("live-999999999.json", b'{"pid":999999999,"started":1,"version":"v0","refused":"","request":""}'),
        ("live-1.json", b'{"pid":1,"started":7,"version":"v0","refused":"","request":""}'),
        ("live-2.json", b"half a fi"),
        ("live-3.json", b'{"pid":3}'),
    ):
        (tmp_path / name).write_bytes(content)
    assert WorkerGroup().statuses() == [standing]


NOTE = """
import sys
from glow_service.live.workers import WorkerGroup
WorkerGroup().note("v1", "", "")
print("noted", flush=True)
sys.stdin.readline()
"""


def note_apart() -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", NOTE], cwd=ROOT, **pipes)


def test_all_have_loaded_once_each_has_noted_a_version_whoever_dies_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group = WorkerGroup()
    group.note("v1", "", "")
    assert not group.have_loaded(2)
    with note_apart() as other:
        assert other.stdout is not None and other.stdout.readline() == b"noted\n"
        assert group.have_loaded(2)
        other.kill()
    assert len(group.statuses()) == 1 and group.have_loaded(2)
    assert WorkerGroup().have_loaded(2)  # one that is started again is not alone, though a mate may be


def test_once_all_have_loaded_no_worker_says_otherwise(
    toy_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker was told before, while it loaded or waited for its group, is not remembered."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group, resources = WorkerGroup(), Resources(toy_index, Metrics())
    readiness = Readiness(resources, group, processes=2)
    with note_apart() as other:

        async def ask() -> None:
            assert other.stdout is not None
            with pytest.raises(NotReadyError, match="still loading"):
                await readiness.check()
            version = resources.load().version
            with pytest.raises(NotReadyError, match="not all workers"):
                await readiness.check()
            group.note(version, "", "")
            assert other.stdout.readline() == b"noted\n"
            assert (await readiness.check()).version == version

        asyncio.run(ask())
        other.kill()
    readiness.close()


def test_workers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    inside = []

    def load() -> None:
        with WorkerGroup().turn(1):
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0.01)  # for another to come in
            inside.pop()

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(load) for _ in range(6)]:
            each.result(30)


class Client(threading.Thread):
    """Searches, with a new connection after each that was lost, until it is told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.enough = url, threading.Event()
        self.statuses, self.lost, self.mixed = list[int](), list[float](), 0

    def run(self) -> None:
        """The thread's work."""
        number = 0
        while not self.enough.is_set():
            with httpx.Client(base_url=self.url, timeout=30) as http, suppress(httpx.TransportError):
                while not self.enough.is_set():
                    number += 1
                    answer = http.post("/search", json={"query": f"honey bees {number}"})
                    self.statuses.append(answer.status_code)
                    found, version = answer.json(), answer.headers["x-index-version"]
                    start = {"a": "toy/", "b": "other/"}[version[0]]
                    ids = [hit["id"] for hit in found["hits"]]
                    self.mixed += found["index"]["version"] != version or not all(
                        each.startswith(start) for each in ids
                    )
                return
            self.lost.append(time.monotonic())


def test_swaps_of_two_workers_fail_nothing_and_a_kill_loses_the_workers_own_requests_alone(
    versions: Any, start_server: Any, admin: dict[str, str], admin_flags: list[str], tmp_path: Path
) -> None:
    names = ["b1", "a2", "b2", "a3"]
    for name in names:
        versions.add(name)
    with start_server(tmp_path, "--index-root", str(versions.path), "--workers", "2", *admin_flags) as server:

        def pids() -> list[int]:
            path = f"/proc/{server.process.pid}/task/{server.process.pid}/children"
            return [int(child) for child in Path(path).read_text().split()]

        def ready() -> Any:
            return httpx.get(f"{server.url}/readyz").json()["workers"]["ready"]

        clients = [Client(server.url) for _ in range(4)]
        for client in clients:
            client.start()
        for name in names:
            versions.publish(name)
            reloaded = httpx.post(f"{server.url}/admin/reload", headers=admin, timeout=60)
            assert reloaded.json()["live"]["version"] == name
            assert reloaded.json()["workers"] == {"count": 2, "following": 2, "refusing": 0}
            assert reloaded.elapsed.total_seconds() < 10.0, "it did not wait for the other worker in vain"
        assert [client.lost for client in clients] == [[]] * 4
        before = set(pids())
        os.kill(pids()[0], signal.SIGKILL)
        until(lambda: ready() == 2 and set(pids()) != before)
        for client in clients:
            client.enough.set()
            client.join()
        # One request at most for each connection.
        assert max(len(client.lost) for client in clients) <= 1
        assert {status for client in clients for status in client.statuses} == {200}
        assert sum(client.mixed for client in clients) == 0
        ends = pids()
        server.process.kill()  # the workers end with their supervisor
        until(lambda: not any(Path(f"/proc/{each}/cmdline").exists() for each in ends))
