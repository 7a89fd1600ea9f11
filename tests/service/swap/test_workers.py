"""Swaps of several workers, of which one is killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow_service.errors import NotReadyError
from glow_service.live.resources import Resources
from glow_service.live.workers import Readiness, WorkerGroup
from glow_service.telemetry.metrics import FOLDER_VARIABLE, Metrics
from tests.service.swap.conftest import searching
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
    assert len(group.statuses()) == 1 and WorkerGroup().have_loaded(2)
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

        seconds = []
        with searching(server.url, 2) as clients:
            for name in names:
                versions.publish(name)
                reloaded = httpx.post(f"{server.url}/admin/reload", headers=admin, timeout=60)
                assert reloaded.json()["live"]["version"] == name
                assert reloaded.json()["workers"] == {"count": 2, "following": 2, "refusing": 0}
                seconds.append(reloaded.elapsed.total_seconds())
            assert min(seconds) < 10.0, "each time, it waited for the other worker in vain"
            assert [client.lost for client in clients] == [0, 0]
            before = set(pids())
            os.kill(pids()[0], signal.SIGKILL)
            until(lambda: ready() == 2 and set(pids()) != before)
        assert max(client.lost for client in clients) <= 1  # one request at most of each connection
        workers = pids()
        server.process.kill()  # the workers end with their supervisor
        until(lambda: not any(Path(f"/proc/{each}/cmdline").exists() for each in workers))
