"""Ray on several node processes of this machine: one that dies loses nothing, and nothing waits for one that hangs."""

import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from glow.errors import StoreError
from glow_index_builder.encoding import schedule
from glow_index_builder.encoding.schedule import RayImport, in_ray, in_threads, start_ray
from tests.index_builder.test_runner import as_job, encode, facts, job_of, vectors
from tests.made_index import made
from tests.stores.ray_cluster import RayCluster

DOCUMENTS = 160


def test_a_build_on_a_cluster_is_the_local_one_to_the_bit(
    ray_cluster: RayCluster, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    ray_cluster.want_nodes(2)
    files = []
    for more in ({}, {"runner": "ray", "ray_address": ray_cluster.address, "workers": 2}):
        root = made(toy_model, toy_corpus, tmp_path / more.get("runner", "local"), shard_documents=4, **more)
        records = root.manifest(root.current()).files.items()
        files.append({path: record.sha256 for path, record in records if path != "report.json"})
    assert files[0] == files[1]


@pytest.fixture(scope="module")
def slow(ray_cluster: RayCluster) -> Iterator[ModuleType]:
    """The encoders of `slow_encoder`, where Ray's processes find them, too; this process stays connected: a start is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        ray_cluster.want_nodes(2)
        start_ray(2, ray_cluster.address)
        yield importlib.import_module("slow_encoder")
        importlib.import_module("ray").shutdown()


def test_a_task_that_hangs_is_begun_again_beside_itself(
    ray_cluster: RayCluster,
    slow: ModuleType,
    tmp_path: Path,
    learned_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "STRAGGLER_S", 2.0)
    # The usual time is mostly that of a worker's start.
    monkeypatch.setattr(schedule, "STRAGGLER_TIMES", 1.0)
    ids = [f"d{number}" for number in range(24)]
    plain, job = (job_of(tmp_path / name, learned_model, ids) for name in ("plain", "here"))
    encode(in_threads(plain), plain, len(ids))
    started = time.monotonic()
    found = encode(in_ray(as_job(slow.StuckEncoder, job), 2, ray_cluster.address), job, len(ids))
    assert time.monotonic() - started < slow.NEVER_S / 10
    assert (found.failures, found.documents) == (0, len(ids))
    assert vectors(job) == vectors(plain)


@dataclass(frozen=True)
class KillsItsWorker:
    """In place of an import of a range: of one in two, the worker is killed the first times."""

    marks: Path
    times: int

    def __call__(self, collection: str, start: int, stop: int) -> None:
        mark = self.marks / f"{start}"
        tries = len(mark.read_bytes()) if mark.exists() else 0
        mark.write_bytes(b"x" * (tries + 1))
        if tries < self.times and start % 32:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("slow")
def test_a_range_whose_worker_is_killed_is_imported_again(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "RANGE_ROWS", 16)
    for times in (1, 2):
        (tmp_path / str(times)).mkdir()
        task = KillsItsWorker(tmp_path / str(times), times)
        run = RayImport(task, 2, ray_cluster.address)("any", 0, 48)
        if times == 1:
            assert list(run)[-1] == 48
        else:
            with pytest.raises(StoreError, match=r"rows 16 to 32 could not be imported by Ray's workers"):
                list(run)


def test_a_node_that_is_killed_in_the_middle_loses_nothing(
    ray_cluster: RayCluster, slow: ModuleType, tmp_path: Path, learned_model: Path
) -> None:
    ids = [f"d{number}" for number in range(DOCUMENTS)]
    plain, job = (job_of(tmp_path / name, learned_model, ids) for name in ("plain", "here"))
    expected = encode(in_threads(plain), plain, len(ids))
    ray_cluster.want_nodes(2)

    def kill() -> None:
        held, until = job.folder / "held", time.monotonic() + 120
        while not (held.exists() and held.read_text().endswith("\n")):
            assert time.monotonic() < until, "no task was held"
            time.sleep(0.05)
        ray_cluster.kill_node_of(int(held.read_text()))

    killer = threading.Thread(target=kill)
    killer.start()
    found = encode(in_ray(as_job(slow.HeldEncoder, job), 2, ray_cluster.address), job, len(ids))
    killer.join()
    assert found.failures >= 1 and found.poison == {}
    assert (facts(found), found.documents) == (facts(expected), len(ids))
    assert vectors(job) == vectors(plain)
