"""The query log: real files, real processes, real failures of the disk."""

import json
import re
import resource
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
from tests.program import python
from tests.until import until

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
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "queries.jsonl"


@pytest.fixture
def open_log(path: Path, metrics: Metrics) -> Open:
    return lambda share=1.0: QueryLog(metrics, str(path), share)


@pytest.fixture
def write_log(open_log: Open) -> Callable[..., None]:
    def write(*queries: LoggedQuery) -> None:
        with closing(open_log()) as log:
            for query in queries:
                log.log(query)

    return write


def lost(metrics: Metrics, reason: str) -> float:
    return metrics.registry.get_sample_value("glow_query_log_lost_total", {"reason": reason}) or 0.0


def numbered(count: int) -> list[LoggedQuery]:
    return [replace(QUERY, request_id=str(number)) for number in range(count)]


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
    ids = [f"request-{number}" for number in range(10_000)]
    with closing(open_log(share)) as first, closing(open_log(share)) as second:
        chosen = [name for name in ids if first.wants(name)]
        assert [name for name in ids if second.wants(name)] == chosen
    assert len(chosen) == pytest.approx(share * len(ids), abs=4 * (len(ids) * share * (1 - share)) ** 0.5)


def test_full_files_are_renamed_and_the_oldest_go(
    write_log: Callable[..., None], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 4096)
    monkeypatch.setattr(logs, "MAX_FILES", 2)
    write_log(*numbered(100))
    files = sorted(path.parent.glob("queries*"))
    assert [file.name for file in files] == ["queries.jsonl", "queries.jsonl.1", "queries.jsonl.2"]
    assert all(file.stat().st_size <= 4200 and file.stat().st_mode & 0o777 == 0o600 for file in files)
    found = [int(query.request_id) for query in read_query_log(path)]
    assert 20 < len(found) < 100
    assert found == [*range(100 - len(found), 100)]  # the youngest, whole, in order


def test_a_file_that_somebody_renamed_is_left_alone_and_a_folder_may_go_and_come_back(
    open_log: Open, path: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    aside = path.parent.with_name("aside")
    with closing(open_log()) as log:
        log.log(QUERY)
        until(lambda: path.stat().st_size)
        path.parent.rename(aside)
        for expected in (1, 2):
            log.log(QUERY)
            until(lambda: lost(metrics, "not_written") == expected)  # noqa: B023 - waited for at once
        path.parent.mkdir()
        log.log(replace(QUERY, request_id="r2"))
    assert [record.name for record in caplog.records] == ["glow_service.telemetry.logs"]
    for place, request_id in ((aside / path.name, "r1"), (path, "r2")):
        assert [query.request_id for query in read_query_log(place)] == [request_id]


def test_each_worker_has_a_file_and_they_are_read_as_one(open_log: Open, path: Path) -> None:
    times = iter(range(8))
    for _ in range(2):
        workers = [open_log() for _ in range(2)]
        for worker in (0, 1, 1, 0):
            when = f"2026-11-21T02:23:1{next(times)}.000+00:00"
            workers[worker].log(replace(QUERY, request_id=f"r{worker}", time=when))
        for log in workers:
            log.close()
        names = sorted(file.name for file in path.parent.glob("queries*"))
        assert names == ["queries.jsonl", "queries.jsonl-2"]
    assert [query.request_id for query in read_query_log(path)] == ["r0", "r1", "r1", "r0"] * 2


def test_a_full_disk_costs_lines_and_a_repaired_one_none(
    write_log: Callable[..., None], path: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel writes up to the limit and refuses the rest, as a disk does that fills up in the middle of a write.
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        write_log(*numbered(200))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    write_log(*numbered(5))
    found = [query.request_id for query in read_query_log(path)]
    assert found[-5:] == ["0", "1", "2", "3", "4"]
    assert lost(metrics, "not_written") == 205 - len(found) > 0
    assert ["cannot write the query log" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("name", ["no/such/folder/queries.jsonl", "."])
def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path, name: str) -> None:
    said = r"--query-log .*cannot write to .*name a file in an existing folder"
    with pytest.raises(ConfigError, match=said):
        QueryLog(Metrics(), str(tmp_path / name))


def test_a_disk_that_hangs_costs_lines_and_nobody_waits(path: Path) -> None:
    # A pipe that nobody empties takes 64 KiB; then the thread's write does not return, and the process ends all the same.
    script = f"""
import os, time
from glow.query_log import LoggedQuery
from glow_service.telemetry import logs
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog
os.mkfifo("{path}")
pipe = os.open("{path}", os.O_RDWR)
logs._prepare = lambda path: None
logs.MAX_WAITING, logs.CLOSE_WITHIN_S = 50, 0.3
metrics = Metrics()
log = QueryLog(metrics, "{path}")
query = LoggedQuery("r", "bees " * 15_000, "dense", 10, 0, "v", 1.0)
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
    done = python("-c", script, timeout=30)
    assert done.returncode == 0, done.stderr
    lines, took_s = map(float, done.stdout.split())
    assert lines == 101 and took_s < 2


def test_hits_are_those_of_the_answer_and_a_query_that_is_no_json_is_lost_alone(
    open_log: Open, path: Path, metrics: Metrics
) -> None:
    hits = ResultFragment(b'"index":{},"hits":[{"rank":1,"id":"a\\"b"},{"id":"c"}]')
    with closing(open_log()) as log:
        log.log(replace(QUERY, filter=object()))
        log.log(replace(QUERY, query="\ud800"))
        log.log(QUERY, ResultFragment(b"no page"))
        log.log(replace(QUERY, hits=()), hits)
    assert [query.hits for query in read_query_log(path)] == [('a"b', "c")]
    assert lost(metrics, "not_json") == 3


def test_the_line_in_the_docs_is_one(path: Path, write_log: Callable[..., None]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    shown: dict[str, Any] = next(block for block in blocks if "hits" in block)
    write_log(replace(QUERY, filter=None))
    assert [*json.loads(path.read_text())] == [*shown]
    path.write_text(json.dumps(shown) + "\n")
    (query,) = read_query_log(path)
    assert query.hits == ("d42", "d7", "d12")


def test_half_a_line_that_a_power_cut_left_spoils_no_other(
    write_log: Callable[..., None], path: Path
) -> None:
    for name in ("first", "second"):
        write_log(replace(QUERY, query=name))
        with path.open("ab") as file:
            file.write(b'{"time": "2026-11-25T')
    write_log(replace(QUERY, query="third"))
    skipped = SkippedLines()
    assert [each.query for each in read_query_log(path, skipped)] == ["first", "second", "third"]
    assert skipped.count == 2
    assert path.read_bytes().endswith(b"}\n")
