"""A Ray cluster of several node processes on this machine: a node that dies loses nothing, and nothing waits for one that hangs."""

import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow_index_builder.building import build
from glow_index_builder.encoding import ray_runner
from glow_index_builder.encoding.ray_runner import RayRunner
from glow_index_builder.encoding.runner import ThreadRunner
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from tests.index_builder.test_runner import encode, job_of, vectors

ray = pytest.importorskip("ray")
DOCUMENTS = 160


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The encoders of `slow_encoder`, where Ray's processes find them, too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("slow_encoder")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that encodes nothing, and two nodes that do."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield found
    ray.shutdown()
    found.shutdown()


def test_a_node_that_is_killed_in_the_middle_loses_nothing(
    cluster: Any, slow: ModuleType, tmp_path: Path, learned_model: Path
) -> None:
    ids = [f"d{number}" for number in range(DOCUMENTS)]
    plain, job = (job_of(tmp_path / name, learned_model, ids) for name in ("plain", "here"))
    expected = encode(ThreadRunner(plain), plain, len(ids))
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

    def kill() -> None:
        until = time.monotonic() + 120
        while len(list(job.shards.glob("*.json"))) < 8 and time.monotonic() < until:
            time.sleep(0.05)
        cluster.remove_node(nodes[0], allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    found = encode(RayRunner(job, 2, cluster.address, encoder=slow.SlowEncoder), job, len(ids))
    killer.join()
    assert found.failures >= 1 and found.poison == {}
    assert (found.rows, found.documents) == (expected.rows, len(ids))
    assert vectors(job) == vectors(plain)


def test_a_task_that_hangs_is_begun_again_beside_itself(
    cluster: Any, slow: ModuleType, tmp_path: Path, learned_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_runner, "STRAGGLER_S", 2.0)
    cluster.add_node(num_cpus=2)
    ids = [f"d{number}" for number in range(24)]
    plain, job = (job_of(tmp_path / name, learned_model, ids) for name in ("plain", "here"))
    encode(ThreadRunner(plain), plain, len(ids))
    started = time.monotonic()
    found = encode(RayRunner(job, 2, cluster.address, encoder=slow.StuckEncoder), job, len(ids))
    assert time.monotonic() - started < slow.NEVER_S / 10
    assert (found.failures, found.documents) == (0, len(ids))
    assert vectors(job) == vectors(plain)


def test_a_build_on_a_cluster_is_the_local_one_to_the_bit(
    cluster: Any, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    files = []
    for name, more in (
        ("local", {}),
        ("ray", {"runner": "ray", "ray_address": cluster.address, "workers": 2}),
    ):
        options = BuildOptions(
            model=toy_model,
            source=str(toy_corpus),
            output=tmp_path / name,
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
