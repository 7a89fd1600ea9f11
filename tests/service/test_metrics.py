"""Metrics: what the docs list is what is there, cheap counting, and one answer for several worker processes."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
from tests.until import until

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(r"^\| `(glow_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def samples(text: str | bytes) -> dict[str, float]:
    lines = (text if isinstance(text, str) else text.decode()).splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


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


# -- several workers ---------------------------------------------------------------------------------------------

WORKER = """
import sys
from glow_service.telemetry.metrics import Metrics
metrics = Metrics()
def text():
    print(metrics.text().decode(), flush=True)
print("started", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Worker:
    """A process of its own that has metrics and does what it is told."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", WORKER], cwd=ROOT, text=True, **pipes)

    def read_until(self, word: str) -> str:
        """What it wrote before a line of this one word."""
        assert self.process.stdout
        lines = []
        for line in self.process.stdout:
            if line.strip() == word:
                return "".join(lines)
            lines.append(line)
        raise AssertionError("the worker ended")

    def do(self, statement: str) -> str:
        """Has it run a statement; returns what that wrote."""
        assert self.process.stdin
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        return self.read_until("done")

    def samples(self) -> dict[str, float]:
        """What it answers to /metrics."""
        return samples(self.do("text()").strip())


@contextmanager
def running(count: int) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        workers = [Worker() for _ in range(count)]
        for worker in workers:
            stack.callback(worker.process.wait)
            stack.callback(worker.process.kill)
        for worker in workers:
            worker.read_until("started")
        yield workers


def folders(pid: int) -> list[Path]:
    """Folders of metrics that a process made."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))  # noqa: S108 - where the service puts them
    return [folder for place in places for folder in place.glob(f"glow-metrics-{pid}-*")]


def test_any_worker_answers_for_all_and_a_dead_one_leaves_its_counts_alone() -> None:
    with metrics_folder(2):
        folder = Path(os.environ[FOLDER_VARIABLE])
        assert folders(os.getpid()) == [folder] and folder.stat().st_mode & 0o777 == 0o700
        with running(2) as (first, second):
            for worker, times in ((first, 3), (second, 4)):
                worker.do(f"for _ in range({times}): metrics.request('/search', 200, 0.002)")
                worker.do(f"metrics.in_flight.inc({times}); metrics.queue_depth.set({times})")
            first.do("metrics.ready.set(1); metrics.index_documents.set(50)")
            first.do("metrics.index_created.set(1000.0)")

            found, same = first.samples(), second.samples()
            assert found.keys() == same.keys()
            for answer in (found, same):
                assert answer['glow_requests_total{route="/search",status="200"}'] == 7
                assert answer['glow_request_seconds_bucket{le="0.0025",route="/search"}'] == 7
                assert answer["glow_requests_in_flight"] == answer["glow_queue_depth"] == 7
                assert answer["glow_workers"] == 2
                assert answer["glow_ready"] == 0  # the second one is not, as yet
                assert answer["glow_index_documents"] == 50  # the second one has not said, and does not count
                assert answer["glow_index_age_seconds"] == pytest.approx(time.time() - 1000, abs=5)
                assert answer[f'glow_build_info{{version="{__version__}"}}'] == 1
                for pid in (first.process.pid, second.process.pid):
                    assert answer[f'glow_process_resident_bytes{{kind="private",pid="{pid}"}}'] > 1e6
            second.do("metrics.ready.set(1)")
            second.do(
                "metrics.index_info.labels('v1', 'm').set(1); metrics.index_info.labels('v1', 'm').set(0)"
            )
            second.do("metrics.index_info.labels('v2', 'm').set(1)")
            Path(folder, f"counter_{os.getpid()}.db").touch()  # as a worker that is just starting
            found = first.samples()
            assert found["glow_ready"] == 1 and found["glow_workers"] == 2
            infos = [name for name in found if name.startswith("glow_index_info")]
            assert infos == ['glow_index_info{model="m",version="v2"}']

            second.process.kill()
            until(lambda: first.samples()["glow_workers"] != 2)  # nobody waited for it: it is a zombie
            found = first.samples()
            assert found['glow_requests_total{route="/search",status="200"}'] == 7
            assert found["glow_requests_in_flight"] == found["glow_queue_depth"] == 3
            assert not [name for name in found if f'pid="{second.process.pid}"' in name]
        assert folder.exists()
    assert not folder.exists()
    assert FOLDER_VARIABLE not in os.environ


def test_metrics_of_two_real_workers_are_one_answer(toy_index: Path, run_server: Callable[..., Any]) -> None:
    with metrics_folder(1):
        assert FOLDER_VARIABLE not in os.environ and not folders(os.getpid())  # memory is enough
    with run_server("--index-root", toy_index, "--workers", 2, "--cache-entries", 0) as server:
        # The server is ready once either is; wait for both.
        until(lambda: samples(httpx.get(f"{server.url}/metrics").text)["glow_ready"] == 1)
        for _ in range(10):  # a connection each: the kernel deals them out
            assert httpx.post(f"{server.url}/search", json={"query": "honey bees"}).status_code == 200
        name = 'glow_requests_total{route="/search",status="200"}'
        # A request is counted after its response.
        until(lambda: samples(httpx.get(f"{server.url}/metrics").text)[name] == 10)
        for _ in range(6):
            found = samples(httpx.get(f"{server.url}/metrics").text)
            assert (found[name], found["glow_workers"]) == (10, 2)
        assert len(folders(server.process.pid)) == 1 and server.stop() == 0
    assert not folders(server.process.pid)
