"""The query log: real files, real processes, real failures of the disk."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from glow.errors import ConfigError
from glow.query_log import LoggedQuery, SkippedLines, read_query_log
from glow_service.fragment import ResultFragment
from glow_service.telemetry import logs
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog
from tests.until import until

ROOT = Path(__file__).parent.parent.parent
QUERY = LoggedQuery(
    request_id="r1",
    query='wie finden bienen heim? 🐝 \u2028 "quoted"\nline',
    retriever="dense",
    top_k=10,
    offset=5,
    index="20261121T022318Z-6416",
    took_ms=3.25,
    filter={"and": [{"field": "lang", "eq": "de"}]},
    degraded=("timeout",),
    hits=("d/1", "d2"),
)

Open = Callable[..., QueryLog]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queries.jsonl"


@pytest.fixture
def open_log(path: Path, metrics: Metrics) -> Open:
    def make(**settings: Any) -> QueryLog:
        return QueryLog(metrics, str(path), **settings)

    return make


@pytest.fixture
def write_log(open_log: Open) -> Open:
    """Logs some queries and closes."""

    def write(*queries: LoggedQuery, **settings: Any) -> QueryLog:
        with closing(open_log(**settings)) as log:
            for query in queries:
                log.log(query)
        return log

    return write


def lost(metrics: Metrics, reason: str) -> float:
    return metrics.registry.get_sample_value("glow_query_log_lost_total", {"reason": reason}) or 0.0


def test_lines_appear_while_the_service_runs_and_are_for_its_user_alone(open_log: Open, path: Path) -> None:
    log = open_log()
    assert path.read_bytes() == b""
    log.log(QUERY)
    until(lambda: path.read_bytes().endswith(b"\n"))
    assert path.stat().st_mode & 0o777 == 0o600
    log.close()
    log.log(QUERY)  # too late, and no failure
    (found,) = read_query_log(path)
    assert replace(found, time="") == QUERY
    assert abs(time.time() - datetime.fromisoformat(found.time).timestamp()) < 30


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_sample_is_a_share_of_the_requests_and_always_the_same(open_log: Open, share: float) -> None:
    first, second = (open_log(share=share) for _ in range(2))
    ids = [f"request-{number}" for number in range(10_000)]
    chosen = [name for name in ids if first.wants(name)]
    assert [name for name in ids if second.wants(name)] == chosen
    assert len(chosen) == pytest.approx(share * len(ids), abs=4 * (len(ids) * share * (1 - share)) ** 0.5)
    for log in (first, second):
        log.close()


def test_full_files_are_renamed_and_the_oldest_go(
    write_log: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 4096)
    monkeypatch.setattr(logs, "MAX_FILES", 2)
    write_log(*(replace(QUERY, request_id=str(number)) for number in range(100)))
    files = sorted(path.parent.glob("queries*"))
    assert [file.name for file in files] == ["queries.jsonl", "queries.jsonl.1", "queries.jsonl.2"]
    assert all(file.stat().st_size <= 4200 and file.stat().st_mode & 0o777 == 0o600 for file in files)
    found = [int(query.request_id) for query in read_query_log(path)]
    assert 20 < len(found) < 100
    assert found == [*range(100 - len(found), 100)]  # the youngest, whole, in order


def test_a_file_that_somebody_renamed_is_left_alone_and_a_folder_may_go_and_come_back(
    tmp_path: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    folder, aside = tmp_path / "logs", tmp_path / "aside"
    folder.mkdir()
    path = folder / "queries.jsonl"
    with closing(QueryLog(metrics, str(path))) as log:
        log.log(QUERY)
        until(lambda: path.stat().st_size)
        folder.rename(aside)
        for expected in (1, 2):
            log.log(QUERY)
            until(lambda: lost(metrics, "not_written") == expected)  # noqa: B023 - waited for at once
        folder.mkdir()
        log.log(replace(QUERY, request_id="r2"))
    assert [record.name for record in caplog.records] == ["glow_service.telemetry.logs"]
    for place, request_id in ((aside / "queries.jsonl", "r1"), (path, "r2")):
        assert [query.request_id for query in read_query_log(place)] == [request_id]


def test_each_worker_has_a_file_and_they_are_read_as_one(open_log: Open, path: Path) -> None:
    times = iter(range(8))
    for names in (["queries.jsonl", "queries.jsonl-2"], ["queries.jsonl", "queries.jsonl-2"]):
        workers = [open_log() for _ in range(2)]
        for worker in (0, 1, 1, 0):
            when = f"2026-11-21T02:23:1{next(times)}.000+00:00"
            workers[worker].log(replace(QUERY, request_id=f"r{worker}", time=when))
        for log in workers:
            log.close()
        assert sorted(file.name for file in path.parent.glob("queries*")) == names
    assert [query.request_id for query in read_query_log(path)] == ["r0", "r1", "r1", "r0"] * 2


def test_a_full_disk_costs_lines_and_a_repaired_one_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The kernel writes up to the limit and refuses the rest, as a disk does that fills up in the middle of a write.
    script = f"""
import resource, sys
from glow.query_log import LoggedQuery
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
metrics = Metrics()
def log(count):
    log = QueryLog(metrics, "{tmp_path}/queries.jsonl")
    for number in range(count):
        log.log(LoggedQuery(str(number), "bees " * 10, "dense", 10, 0, "v", 1.0))
    log.close()
log(200)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log(5)
print(metrics.registry.get_sample_value("glow_query_log_lost_total", {{"reason": "not_written"}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    found = [*read_query_log(tmp_path / "queries.jsonl")]
    assert [query.request_id for query in found[-5:]] == ["0", "1", "2", "3", "4"]
    assert float(done.stdout) == 205 - len(found) > 0
    assert done.stderr.count("cannot write the query log") == 1


@pytest.mark.parametrize("name", ["no/such/folder/queries.jsonl", "."])
def test_a_file_that_cannot_be_written_is_an_error_at_the_start(
    tmp_path: Path, metrics: Metrics, name: str
) -> None:
    said = r"--query-log .*cannot write to .*name a file in an existing folder"
    with pytest.raises(ConfigError, match=said):
        QueryLog(metrics, str(tmp_path / name))


def test_a_disk_that_hangs_costs_lines_and_nobody_waits(tmp_path: Path) -> None:
    # A pipe that nobody empties takes 64 KiB; then the thread's write does not return.
    script = f"""
import os, time
from glow.query_log import LoggedQuery
from glow_service.telemetry import logs
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog
os.mkfifo("{tmp_path}/queries.jsonl")
pipe = os.open("{tmp_path}/queries.jsonl", os.O_RDWR)
logs._prepare = lambda path: None
logs.MAX_WAITING, logs.CLOSE_WITHIN_S = 50, 0.3
metrics = Metrics()
log = QueryLog(metrics, "{tmp_path}/queries.jsonl")
query = LoggedQuery("r", "bees " * 2_000, "dense", 10, 0, "v", 1.0)
lost = lambda: metrics.registry.get_sample_value("glow_query_log_lost_total", {{"reason": "queue_full"}}) or 0
while not lost():
    log.log(query)
    time.sleep(0.001)
started = time.perf_counter()
for _ in range(100):
    log.log(query)
log.close()
print(lost(), time.perf_counter() - started)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30)
    lost, took_s = map(float, done.stdout.split())
    assert lost == 101 and took_s < 2


def test_hits_are_those_of_the_answer_and_a_query_that_is_no_json_is_lost_alone(
    open_log: Open, path: Path, metrics: Metrics
) -> None:
    log = open_log()
    log.log(replace(QUERY, filter=object()))
    log.log(replace(QUERY, query="\ud800"))
    log.log(QUERY, ResultFragment(b"no page"))
    log.log(
        replace(QUERY, hits=()), ResultFragment(b'"index":{},"hits":[{"rank":1,"id":"a\\"b"},{"id":"c"}]')
    )
    log.close()
    assert [query.hits for query in read_query_log(path)] == [('a"b', "c")]
    assert lost(metrics, "not_json") == 3


def test_the_line_in_the_docs_is_one(path: Path, write_log: Open) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    shown = next(block for block in blocks if "hits" in block)
    write_log(replace(QUERY, filter=None))
    assert [*json.loads(path.read_text())] == [*shown]
    path.write_text(json.dumps(shown) + "\n")
    (query,) = read_query_log(path)
    assert query.hits == ("d42", "d7", "d12")


def test_half_a_line_that_a_power_cut_left_spoils_no_other(write_log: Open, path: Path) -> None:
    for name in ("first", "second"):
        write_log(replace(QUERY, query=name))
        with path.open("ab") as file:
            file.write(b'{"time": "2026-11-25T')
    write_log(replace(QUERY, query="third"))
    skipped = SkippedLines()
    assert [each.query for each in read_query_log(path, skipped)] == ["first", "second", "third"]
    assert skipped.count == 2
    assert path.read_bytes().endswith(b"}\n")
