"""What workers of one service know of each other: what each has live, whether all have loaded, and whose turn it is."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glow_service.errors import NotReadyError
from glow_service.live.readiness import Readiness
from glow_service.live.resources import Resources
from glow_service.live.workers import WorkerGroup
from glow_service.telemetry.exposition import FOLDER_VARIABLE
from glow_service.telemetry.metrics import Metrics

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


def test_all_have_loaded_once_each_has_noted_a_version_whoever_dies_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group = WorkerGroup()
    group.note("v1", "", "")
    assert not group.have_loaded(2)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", NOTE], cwd=ROOT, **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"noted\n"
        assert group.have_loaded(2)
        other.kill()
    assert len(group.statuses()) == 1
    assert group.have_loaded(2)
    assert WorkerGroup().have_loaded(2)  # one that is started again is not alone, though a mate may be


def test_once_all_have_loaded_no_worker_says_otherwise(
    toy_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker was told before, while it loaded or waited for its group, is not remembered."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group, resources = WorkerGroup(), Resources(toy_index, Metrics())
    readiness = Readiness(resources, group, processes=2)
    with subprocess.Popen(
        [sys.executable, "-c", NOTE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:

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


def test_workers_take_turns_and_one_that_is_over_is_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    inside, most = [], []
    two = threading.Barrier(2)

    def load() -> None:
        with WorkerGroup().turn(2):
            inside.append(1)
            two.wait(30)  # a second one comes in
            most.append(len(inside))
            time.sleep(0.05)  # and no third one
            inside.pop()

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(most), max(most), inside) == (6, 2, [])
