"""Metrics: what the docs list is what is there, cheap counting, and one answer for several worker processes."""

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from glow import __version__
from glow.index import Index
from glow_service.telemetry.metrics import FOLDER_VARIABLE, Metrics, metrics_folder
from tests.service.asking import half_search, is_answered, samples
from tests.until import until

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(r"^\| `(glow_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def touch_everything(metrics: Metrics) -> None:
    """Gives every metric a sample, so that its labels show."""
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram) and metric._labelnames:
            metric.labels(*metric._labelnames)
    metrics.index_info.labels("v", "m").set(1)
    metrics.index_created.set(1)


def shown(metrics: Metrics) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> type and labels of GLOW's metrics in the response of /metrics."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        if family.name.startswith("glow_"):
            name = family.name + "_total" * (family.type == "counter")
            labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
            found[name] = (family.type, labels)
    return found


def test_the_docs_list_every_metric_with_its_type_and_labels_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = ROW.findall(page)
    listed = {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    metrics = Metrics()
    touch_everything(metrics)
    assert len(listed) > 15 and listed == shown(metrics)


def test_the_live_index_takes_the_place_of_the_old_one_and_its_age_is_taken_when_asked(index: Index) -> None:
    def made(created: str, **more: str) -> Index:
        return replace(index, manifest=index.manifest.model_copy(update={"created": created, **more}))

    metrics = Metrics()
    before = samples(metrics.text())
    assert not [name for name in before if name.startswith(("glow_index_info", "glow_index_age"))]
    assert before[f'glow_build_info{{version="{__version__}"}}'] == 1
    created = (datetime.now(UTC) - timedelta(days=2)).isoformat(timespec="seconds")
    for name in ("newer", index.version):
        metrics.use(made(created, name=name))
        found = samples(metrics.text())
        infos = {each: value for each, value in found.items() if each.startswith("glow_index_info")}
        assert infos == {f'glow_index_info{{model="{index.model}",version="{name}"}}': 1}
    assert found["glow_index_age_seconds"] == pytest.approx(2 * 86_400, abs=30)
    assert samples(metrics.text())["glow_index_age_seconds"] > found["glow_index_age_seconds"]
    metrics.use(made("last tuesday"))
    assert "glow_index_age_seconds" not in samples(metrics.text())


def test_memory_and_cpu_time_of_the_process_are_those_of_the_kernel() -> None:
    found = samples(Metrics().text())
    pid = os.getpid()
    names = [f'glow_process_resident_bytes{{kind="{kind}",pid="{pid}"}}' for kind in ("private", "shared")]
    resident = sum(found[name] for name in names)
    assert resident == pytest.approx(found["process_resident_memory_bytes"], rel=0.05)
    worked_s = found[f'glow_process_cpu_seconds_total{{pid="{pid}"}}']
    assert worked_s == pytest.approx(time.process_time(), abs=0.5)
    assert found["glow_workers"] == 1


def test_any_of_two_workers_answers_for_both_and_a_killed_one_leaves_its_counts_alone(
    toy_index: Path, run_server: Callable[..., Any]
) -> None:
    with metrics_folder(1):
        assert FOLDER_VARIABLE not in os.environ  # memory is enough
    name = 'glow_requests_total{route="/search",status="200"}'
    with run_server("--index-root", toy_index, "--workers", 2, "--cache-entries", 0) as server:

        def asked() -> dict[str, float]:  # a connection each: the kernel deals them out
            with server.client() as client:
                return samples(client)

        def pids() -> list[int]:
            path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
            return [int(child) for child in path.read_text().split()]

        until(lambda: asked()["glow_ready"] == 1)  # the server is ready once either is
        for _ in range(10):
            assert httpx.post(f"{server.url}/search", json={"query": "honey bees"}).status_code == 200
        until(lambda: asked()[name] == 10)  # a request is counted after its response
        files = Path(f"/proc/{pids()[0]}/maps").read_text().split()
        folder = next(Path(each).parent for each in files if f"/glow-metrics-{server.process.pid}-" in each)
        assert folder.stat().st_mode & 0o777 == 0o700
        with server.client() as client, half_search(client):
            until(lambda: asked()["glow_requests_in_flight"] == 2)
            for _ in range(6):
                found = asked()
                assert (found[name], found["glow_workers"], found["glow_requests_in_flight"]) == (10, 2, 2)
                assert found["glow_index_documents"] == 50
                assert len([each for each in found if each.startswith("glow_index_info")]) == 1
                resident = [each for each in found if each.startswith("glow_process_resident_bytes")]
                assert {pid for pid in pids() for each in resident if f'pid="{pid}"' in each} == {*pids()}
            before = pids()
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            until(lambda: not {*before} & {*pids()} and is_answered(server.url))
        until(lambda: asked()["glow_ready"] == 1 and asked()["glow_workers"] == 2)
        found = asked()
        assert (found[name], found["glow_requests_in_flight"]) == (
            11,
            1,
        )  # and the one that was answered again
        assert not [each for each in found for pid in before if f'pid="{pid}"' in each]
        assert server.stop() == 0
    assert not folder.exists()
