"""Health, information, metrics, logs and settings: what operators see and set."""

import io
import json
import logging
import os
import re
import signal
import sys
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
from glow.index.vectors import VECTORS
from glow_service.settings import Settings
from glow_service.telemetry.logs import LogForm, configure_logging
from glow_service.telemetry.metrics import FOLDER_VARIABLE, Metrics, metrics_folder
from tests.service.asking import half_search, is_answered, samples
from tests.until import until


def test_health_and_readiness_are_well(http: httpx.Client, index: Index) -> None:
    assert http.get("/healthz").json() == {"status": "alive"}
    ready = http.get("/readyz")
    assert ready.json() == {
        "status": "ready",
        "index": {"version": index.version, "model": index.model},
        "workers": {"ready": 1, "desired": 1},
    }
    assert ready.headers["x-index-version"] == index.version
    for path in ("/healthz", "/readyz", "/info", "/"):
        head = http.head(path)
        assert head.status_code == 200 and head.content == b""


def test_info_tells_what_runs(http: httpx.Client, index: Index) -> None:
    info = http.get("/info").json()
    assert info["version"] == __version__ and info["index"]["documents"] == len(index[VECTORS])
    assert info["index"]["hashes"] == index.manifest.hashes
    assert info["providers"] == ["CPUExecutionProvider"]
    assert info["retrievers"] == ["dense", "lexical", "hybrid"]
    assert [field["name"] for field in info["fields"]] == list(index.preprocessor.schema.names)
    assert info["index"]["components"] == ["columns", "impacts", "explain"]
    year = {"type": "number", "types": ["number"], "documents": 50, "distinct": 25}
    assert info["index"]["columns"]["year"] == year and info["index"]["analyzer"] == "english"
    assert info["settings"]["max_body_bytes"] == 65_536 and "index_root" not in info["settings"]


def test_metrics_count_requests_by_route_and_status(http: httpx.Client) -> None:
    before = samples(http)
    http.post("/search", json={"query": "bees " * 90})
    http.post("/search", json={"query": ""})
    http.get("/documents/toy/0")
    http.get("/documents/no/such")
    http.get("/nowhere/at/all")
    after = samples(http)

    def rise(name: str) -> float:
        return after[name] - before.get(name, 0)

    answered = (("/search", 200), ("/search", 422), ("/documents/{id}", 200), ("/documents/{id}", 404))
    for route, status in (*answered, ("unmatched", 404)):
        assert rise(f'glow_requests_total{{route="{route}",status="{status}"}}') == 1
    assert rise('glow_request_seconds_count{route="/search"}') == 2
    assert rise('glow_truncated_total{field="query"}') == 1
    for stage in ("queue", "preprocess", "encode", "search", "fetch"):
        assert rise(f'glow_stage_seconds_count{{stage="{stage}"}}') == 1


def test_the_page_of_the_interface_is_ours(http: httpx.Client) -> None:
    assert http.get("/redoc").status_code == 404
    page = http.get("/docs")
    assert page.status_code == 200 and "http" not in page.text.lower().replace("http interface", "")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")


def test_a_client_that_leaves_in_the_middle_is_counted_and_leaves_nothing_behind(http: httpx.Client) -> None:
    name = 'glow_requests_total{route="/search",status="499"}'
    before = samples(http).get(name, 0)
    with half_search(http):
        until(lambda: samples(http)["glow_requests_in_flight"] == 2)
    until(lambda: samples(http).get(name, 0) > before)
    assert samples(http)["glow_requests_in_flight"] == 1


# Metrics.


def test_the_docs_list_every_metric_with_its_type_and_labels_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(glow_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    listed = {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    metrics, found = Metrics(), {}
    for metric in vars(metrics).values():  # a sample for each, so that its labels show
        if isinstance(metric, Counter | Gauge | Histogram) and metric._labelnames:
            metric.labels(*metric._labelnames)
    metrics.index_info.labels("v", "m").set(1)
    metrics.index_created.set(1)
    for family in text_string_to_metric_families(metrics.text().decode()):
        if family.name.startswith("glow_"):
            labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
            found[family.name + "_total" * (family.type == "counter")] = (family.type, labels)
    assert len(listed) > 15 and listed == found


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
        # And the one that was answered again.
        assert (found[name], found["glow_requests_in_flight"]) == (11, 1)
        assert not [each for each in found for pid in before if f'pid="{pid}"' in each]
        assert server.stop() == 0
    assert not folder.exists()


# Log lines for programs and for people.


class Terminal(io.StringIO):
    """Standard error as a person has it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("form", "stream", "is_text"),
    [
        ("auto", Terminal(), True),
        ("auto", io.StringIO(), False),
        ("json", Terminal(), False),
        ("text", io.StringIO(), True),
    ],
)
@pytest.mark.usefixtures("loggers_as_before")
def test_people_get_text_and_programs_json(
    monkeypatch: pytest.MonkeyPatch, form: LogForm, stream: io.StringIO, is_text: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging("info", form)
    logger = logging.getLogger("glow_service.x")
    logger.info("ready", extra={"fields": {"documents": 3, "index": "a\x1b[31m"}})
    logger.error("it failed")
    first, second = stream.getvalue().splitlines()
    if is_text:
        assert re.fullmatch(r"\d\d:\d\d:\d\d  ready  documents=3  index=a\\x1b\[31m", first)
        assert second.endswith("  error: it failed")
    else:
        assert json.loads(first)["documents"] == 3 and json.loads(second)["level"] == "error"


@pytest.mark.usefixtures("loggers_as_before")
def test_each_request_is_one_json_line_without_its_query(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    configure_logging("info")
    for number, query in enumerate(("bees confidential", "")):
        http.post("/search", json={"query": query}, headers={"X-Request-ID": f"log-me-{number}"})
    until(lambda: stream.getvalue().count("log-me") == 2)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    good, bad = (line for line in lines if "log-me" in str(line.get("request_id")))
    assert (good["method"], good["route"], good["status"], good["level"]) == ("POST", "/search", 200, "info")
    assert good["took_ms"] > 0
    assert (bad["status"], bad["code"]) == (422, "invalid_query")
    assert "confidential" not in stream.getvalue()


# Settings; how they are read is in `test_commands.py`.


def test_the_environment_carries_every_setting_to_a_worker(tmp_path: Path) -> None:
    values = {"page": False, "drain_s": 1.5, "log_level": "error", "workers": 3, "device": "cuda"}
    settings = Settings(index_root=tmp_path / "an index", port=9, **values)
    assert Settings.from_environment(settings.to_environment()) == settings


@pytest.mark.parametrize(
    ("cores", "device", "processes", "threads"),
    [(1, "cpu", 1, 1), (4, "cpu", 4, 1), (16, "cpu", 8, 2), (16, "cuda", 1, 16)],
)
def test_processes_and_threads_follow_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, device: Any, processes: int, threads: int
) -> None:
    monkeypatch.setattr("glow_service.settings._cores", lambda: cores)
    settings = Settings(index_root=Path("somewhere"), device=device)
    assert (settings.processes, settings.threads) == (processes, threads)
    assert Settings(index_root=Path("somewhere"), workers=3, search_threads=5).processes == 3


def test_a_containers_quota_counts_as_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, cores in (("150000 100000", 2), ("50000 100000", 1), ("max 100000", 4), ("", 4)):
        (tmp_path / "cpu.max").write_text(text)
        monkeypatch.setattr("glow_service.settings.CPU_QUOTA", tmp_path / "cpu.max")
        monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))
        assert Settings(index_root=Path("somewhere")).processes == cores
