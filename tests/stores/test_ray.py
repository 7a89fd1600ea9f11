"""Ray on several node processes of this machine: one that dies loses nothing, and nothing waits for one that hangs."""

import importlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import StoreError
from glow_index_builder.building.builder import build
from glow_index_builder.encoding.schedule import RayImport, in_ray, in_threads
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from tests.index_builder.test_runner import as_job, encode, facts, job_of, vectors
from tests.stores.ray_cluster import RayCluster

DOCUMENTS = 160


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The encoders of `slow_encoder`, where Ray's processes find them, too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("slow_encoder")


def test_a_task_that_hangs_is_begun_again_beside_itself(
    ray_cluster: RayCluster,
    slow: ModuleType,
    tmp_path: Path,
    learned_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("glow_index_builder.encoding.schedule.STRAGGLER_S", 2.0)
    ray_cluster.want_nodes(2)
    ids = [f"d{number}" for number in range(24)]
    plain, job = (job_of(tmp_path / name, learned_model, ids) for name in ("plain", "here"))
    encode(in_threads(plain), plain, len(ids))
    started = time.monotonic()
    found = encode(in_ray(as_job(slow.StuckEncoder, job), 2, ray_cluster.address), job, len(ids))
    assert time.monotonic() - started < slow.NEVER_S / 10
    assert (found.failures, found.documents) == (0, len(ids))
    assert vectors(job) == vectors(plain)


def test_a_build_on_a_cluster_is_the_local_one_to_the_bit(
    ray_cluster: RayCluster, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    ray_cluster.want_nodes(2)
    files = []
    for name, more in (
        ("local", {}),
        ("ray", {"runner": "ray", "ray_address": ray_cluster.address, "workers": 2}),
    ):
        options = BuildOptions(
            model=toy_model,
            source=str(toy_corpus),
            index_root=tmp_path / name,
            shard_documents=4,
            threads=1,
            **more,
        )
        build(options, Stages((tmp_path / f"{name}.log").open("w")))
        root = IndexRoot(tmp_path / name)
        manifest = root.manifest(root.current())
        files.append(
            {path: record.sha256 for path, record in manifest.files.items() if path != "report.json"}
        )
    assert files[0] == files[1]


class Rows:
    """Vectors that one worker in two cannot read, the first time."""

    def __init__(self, vectors: np.ndarray, marks: Path, tries: int) -> None:
        self.shape, self._vectors, self._marks, self._tries = vectors.shape, vectors, marks, tries

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, wanted: slice) -> np.ndarray:
        mark = self._marks / f"{wanted.start}"
        tries = len(mark.read_bytes()) if mark.exists() else 0
        mark.write_bytes(b"x" * (tries + 1))
        if tries < self._tries and wanted.start % 32:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._vectors[wanted]


@pytest.mark.parametrize("tries", [1, 2])
def test_a_range_whose_worker_is_killed_is_imported_again(
    tries: int, ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow_index_builder.encoding.schedule.RANGE_ROWS", 16)
    task = ReadOnly(Rows(np.zeros((48, 4), np.float32), tmp_path, tries))
    ray_cluster.want_nodes(2)
    run = RayImport(task, 2, ray_cluster.address)("any", 0, 48)
    if tries == 1:
        assert list(run)[-1] == 48
    else:
        with pytest.raises(StoreError, match=r"rows 16 to 32 could not be imported by Ray's workers"):
            list(run)


@dataclass(frozen=True)
class ReadOnly:
    """Reads a range, in place of importing it."""

    vectors: Rows

    def __call__(self, collection: str, start: int, stop: int) -> None:
        assert len(self.vectors[start:stop]) == stop - start


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
