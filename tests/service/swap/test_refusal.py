"""What cannot be served is refused with a reason, and the live version goes on; how workers know of each other."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import MANIFEST_FILE, IndexRoot, read_manifest
from glow_service.errors import NotReadyError
from glow_service.live.resources import OpenVersion, Resources
from glow_service.live.swap import Swap
from glow_service.live.workers import Readiness, WorkerGroup
from glow_service.telemetry.metrics import FOLDER_VARIABLE, Metrics
from tests.service.swap.conftest import Serve
from tests.until import until

ROOT = Path(__file__).parents[3]


def damage(folder: Path) -> None:
    content = bytearray((folder / "vectors.faiss").read_bytes())
    content[len(content) // 2] ^= 0x40
    (folder / "vectors.faiss").write_bytes(content)


def change_manifest(folder: Path, **values: Any) -> None:
    changed = read_manifest(folder, "index").model_copy(update=values)
    (folder / MANIFEST_FILE).write_bytes(changed.to_bytes())


def write_other_model(folder: Path) -> None:
    change_manifest(folder, hashes={**read_manifest(folder, "index").hashes, "model": "0" * 64})


BAD: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "b1": (damage, "artifact_damaged", "vectors.faiss"),
    "b2": (lambda folder: change_manifest(folder, format=99), "artifact_format", "99"),
    "b3": (write_other_model, "artifact_mismatch", "document_model"),
    "b4": (lambda folder: (folder / MANIFEST_FILE).unlink(), "artifact_not_found", "manifest.json"),
}


def refused(served: Any) -> Any:
    """What `/readyz`, which must be 200, says of a refusal."""
    response = served.http.get("/readyz")
    assert response.status_code == 200 and response.json()["index"]["version"] == served.live
    return response.json().get("swap")


def test_bad_versions_are_refused_with_a_reason_and_the_live_one_goes_on(
    versions: Any, serve: Serve, toy_model: Path
) -> None:
    with serve(document_model=str(toy_model)) as served:
        for count, (name, (spoil, code, word)) in enumerate(BAD.items(), start=1):
            spoil(versions.add(name))
            versions.point(name)
            until(lambda name=name: (refused(served) or {}).get("version") == name)
            swap = refused(served)
            assert (swap["code"], set(swap)) == (code, {"version", "code", "reason", "at"})
            assert word in swap["reason"] and str(versions.path) not in swap["reason"]
            assert served.search().json()["index"]["version"] == served.live == "a1"
            assert served.metric("glow_index_refused") == 1
            assert served.metric('glow_index_swaps_total{outcome="refused"}') == count
        versions.point("nothing-there")
        until(lambda: refused(served)["version"] == "nothing-there")
        versions.point("../../etc")  # no name of a version, and never opened
        until(lambda: refused(served)["version"] == "../../etc")
        assert refused(served)["code"] == "artifact_not_found"
        versions.publish("a2")
        until(lambda: served.live == "a2")
        assert refused(served) is None and served.metric("glow_index_refused") == 0
        until(lambda: served.metric("glow_index_versions_open") == 1)


class Interrupted(Resources):
    """Something happens while versions are being opened."""

    def __init__(self, index_root: Path, metrics: Metrics) -> None:
        super().__init__(index_root, metrics)
        self.meanwhile: list[Callable[[], None]] = []
        self.opened: list[str] = []

    def open(self, version: str) -> OpenVersion:
        found = super().open(version)
        self.opened.append(version)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return found


@pytest.fixture
def parts(versions: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Interrupted, Swap, Metrics]:
    monkeypatch.setattr("glow_service.live.resources.WARMUP_QUERIES", 0)
    metrics = Metrics()
    resources = Interrupted(versions.path, metrics)
    resources.load()
    return resources, Swap(versions.path, resources, metrics, WorkerGroup()), metrics


def outcomes(metrics: Metrics) -> dict[str, int]:
    samples = [sample for family in metrics.swaps.collect() for sample in family.samples]
    return {sample.labels["outcome"]: int(sample.value) for sample in samples if sample.value}


def test_a_swap_that_was_slower_than_further_changes_ends_at_the_newest(versions: Any, parts: Any) -> None:
    resources, swap, metrics = parts
    for name in ("b1", "a2", "b2"):
        versions.add(name)
    versions.publish("b1")
    resources.meanwhile = [lambda: (versions.publish("a2"), versions.publish("b2"))[0]]
    swap.follow()
    swap.follow()
    assert resources.live().version == "b2" and resources.opened == ["a1", "b1", "b2"]
    assert outcomes(metrics) == {"done": 2}


def test_a_version_that_was_rolled_back_while_it_was_opened_is_never_served(
    versions: Any, parts: Any
) -> None:
    resources, swap, metrics = parts
    versions.publish("b1")
    live = resources.live()
    resources.meanwhile = [lambda: versions.publish("a1")]
    swap.follow()
    assert resources.live() is live
    assert swap.refusal is None
    assert outcomes(metrics) == {"superseded": 1}


def test_a_refused_version_is_tried_again_when_its_manifest_is_written_anew_and_not_before(
    versions: Any, parts: Any
) -> None:
    resources, swap, metrics = parts
    folder = versions.add("b1")
    sound = (folder / "vectors.faiss").read_bytes()
    damage(folder)
    versions.point("b1")
    swap.follow()
    (folder / "vectors.faiss").write_bytes(sound)
    swap.follow()
    assert (resources.live().version, swap.refusal.version, outcomes(metrics)) == ("a1", "b1", {"refused": 1})
    (folder / MANIFEST_FILE).write_bytes((folder / MANIFEST_FILE).read_bytes())
    swap.follow()
    assert (resources.live().version, swap.refusal) == ("b1", None)


def test_current_that_is_absent_or_empty_for_a_while_changes_nothing(
    versions: Any, parts: Any, caplog: pytest.LogCaptureFixture
) -> None:
    resources, swap, metrics = parts
    for spoil in (lambda: (versions.path / "CURRENT").unlink(), lambda: versions.point("")):
        spoil()
        swap.follow(force=True)
        assert (swap.refusal, resources.live().version, outcomes(metrics)) == (None, "a1", {})
    assert len([line for line in caplog.records if line.message == "CURRENT cannot be read"]) == 1
    versions.publish("b1")
    swap.follow()
    assert resources.live().version == "b1"


def test_a_version_is_tried_once_when_current_is_replaced_while_it_is_read(versions: Any, parts: Any) -> None:
    _, swap, metrics = parts
    versions.point("none1")
    swap.follow()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IndexRoot, "named", lambda at: (patch.undo(), at.named(), versions.point("none2"))[1])
        swap.follow()
    assert swap.refusal.version == "none2" and outcomes(metrics) == {"refused": 2}


def test_an_unexpected_error_is_a_refusal_that_says_nothing_of_itself(versions: Any, parts: Any) -> None:
    resources, swap, metrics = parts

    def fail() -> None:
        raise MemoryError("secret of the allocator")

    resources.meanwhile = [fail]
    versions.publish("b1")
    swap.follow()
    assert (resources.live().version, swap.refusal.code) == ("a1", "internal")
    assert "secret" not in swap.refusal.reason
    swap.follow(force=True)
    assert (resources.live().version, swap.refusal) == ("b1", None)
    assert outcomes(metrics) == {"refused": 1, "done": 1}


def test_the_same_name_with_another_content_is_another_version(versions: Any, parts: Any) -> None:
    resources, swap, _ = parts
    swap.follow()
    before = resources.live()
    path = versions.path / "a1" / MANIFEST_FILE
    path.write_bytes(path.read_bytes())  # written anew, and the same
    swap.follow()
    assert resources.live() is before
    change_manifest(path.parent, created="2026-01-01T00:00:00")
    swap.follow()
    assert resources.live().manifest.created == "2026-01-01T00:00:00"


# How the workers of a service know of each other.


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


def test_once_all_have_loaded_no_worker_says_otherwise(
    toy_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker was told before, while it loaded or waited for its group, is not remembered."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group, resources = WorkerGroup(), Resources(toy_index, Metrics())
    readiness = Readiness(resources, group, processes=2)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", NOTE], cwd=ROOT, **pipes) as other:

        async def ask() -> None:
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
