"""The query log: real files, real processes, real failures of the disk."""

import fcntl
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
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


def test_what_is_read_is_what_was_logged_and_when(write_log: Open, path: Path) -> None:
    write_log(QUERY, replace(QUERY, request_id="r2", filter=None, time="2026-11-21T02:23:18.112+00:00"))
    first, second = read_query_log(path)
    assert replace(first, time="") == QUERY
    assert abs(time.time() - datetime.fromisoformat(first.time).timestamp()) < 30
    assert (second.request_id, second.filter, second.time) == ("r2", None, "2026-11-21T02:23:18.112+00:00")


def test_hits_are_read_from_the_answer_where_it_is_given(open_log: Open, path: Path) -> None:
    log = open_log()
    fragment = b'"index":{},"hits":[{"rank":1,"id":"a\\"b"},{"rank":2,"id":"c"}]'
    log.log(replace(QUERY, hits=()), ResultFragment(fragment))
    log.close()
    assert [query.hits for query in read_query_log(path)] == [('a"b', "c")]


def test_lines_appear_while_the_service_runs_and_are_for_its_user_alone(open_log: Open, path: Path) -> None:
    log = open_log()
    assert path.read_bytes() == b""
    log.log(QUERY)
    until(lambda: path.read_bytes().endswith(b"\n"))
    assert path.stat().st_mode & 0o777 == 0o600
    log.close()
    log.log(QUERY)  # too late, and no failure
    assert len([*read_query_log(path)]) == 1


def test_a_second_run_goes_on_where_the_first_one_ended(write_log: Open, path: Path) -> None:
    for request_id in ("r1", "r2"):
        write_log(replace(QUERY, request_id=request_id))
    assert [query.request_id for query in read_query_log(path)] == ["r1", "r2"]


def test_without_a_file_nothing_is_kept_or_started(tmp_path: Path, metrics: Metrics) -> None:
    threads = threading.active_count()
    log = QueryLog(metrics)
    log.log(QUERY)
    assert not log.wants("r1")
    assert threading.active_count() == threads
    log.close()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.25, 1.0])
def test_the_sample_is_a_share_of_the_requests_and_always_the_same(open_log: Open, share: float) -> None:
    first, second = (open_log(share=share) for _ in range(2))
    ids = [f"request-{number}" for number in range(10_000)]
    chosen = [name for name in ids if first.wants(name)]
    assert [name for name in ids if second.wants(name)] == chosen
    assert len(chosen) == pytest.approx(share * len(ids), abs=4 * (len(ids) * share * (1 - share)) ** 0.5)
    for log in (first, second):
        log.close()


def test_what_is_not_in_the_sample_is_not_written(write_log: Open, open_log: Open, path: Path) -> None:
    ids = [f"request-{number}" for number in range(200)]
    write_log(*(replace(QUERY, request_id=request_id) for request_id in ids), share=0.5)
    with closing(open_log(share=0.5)) as log:
        chosen = [name for name in ids if log.wants(name)]
    assert 60 < len(chosen) < 140
    assert [query.request_id for query in read_query_log(path)] == chosen


def test_full_files_are_renamed_and_the_oldest_go(write_log: Open, path: Path) -> None:
    write_log(*(replace(QUERY, request_id=str(number)) for number in range(100)), max_bytes=4096, max_files=2)
    files = sorted(file.name for file in path.parent.iterdir())
    assert files == ["queries.jsonl", "queries.jsonl.1", "queries.jsonl.2"]
    assert all(file.stat().st_size <= 4096 for file in path.parent.iterdir())
    found = [int(query.request_id) for query in read_query_log(path)]
    assert 20 < len(found) < 100
    assert found == [*range(100 - len(found), 100)]  # the youngest, whole, in order


def test_a_line_longer_than_a_file_has_one_to_itself(write_log: Open, path: Path) -> None:
    texts = (("r1", "short"), ("r2", "long " * 2_000), ("r3", "short"))
    write_log(*(replace(QUERY, request_id=name, query=text) for name, text in texts), max_bytes=4096)
    assert [query.request_id for query in read_query_log(path)] == ["r1", "r2", "r3"]
    assert len([*path.parent.iterdir()]) == 3


def test_a_file_that_someone_else_renamed_is_left_to_him(open_log: Open, path: Path) -> None:
    log = open_log()
    log.log(QUERY)
    until(lambda: path.stat().st_size)
    aside = path.rename(path.with_name("aside"))
    log.log(replace(QUERY, request_id="r2"))
    log.close()
    assert [query.request_id for query in read_query_log(aside)] == ["r1"]
    assert [query.request_id for query in read_query_log(path)] == ["r2"]


WRITER = """
import sys, time
from pathlib import Path
from glow_service.telemetry import logs
from glow.query_log import LoggedQuery
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog
logs.WRITE_EVERY_S = 0.001
path, name, size, files, count = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
metrics = Metrics()
logs.CLOSE_WITHIN_S = 50.0  # a busy machine must not cut the last lines short
log = QueryLog(metrics, str(path), max_bytes=size, max_files=files)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    log.log(LoggedQuery(f"{name}-{number}", "bees " * (number % 40), "dense", 10, 0, "v", 1.0))
    if number % 8 == 0:
        time.sleep(0.001)
log.close()
print(metrics.registry.get_sample_value("glow_query_log_lost_total", {"reason": "not_written"}) or 0)
"""


def start_writer(path: Path, name: str, size: int, files: int, count: int) -> subprocess.Popen[str]:
    """A process that has opened the log and writes to it once it is told to."""
    arguments = map(str, (path, name, size, files, count))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    writer = subprocess.Popen([sys.executable, "-c", WRITER, *arguments], cwd=ROOT, text=True, **pipes)
    assert writer.stdout and writer.stdout.readline() == "ready\n"
    return writer


def test_two_processes_that_write_and_rotate_at_once_lose_and_mix_nothing(path: Path) -> None:
    writers = [start_writer(path, name, 8192, 1000, 2000) for name in "ab"]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert (writer.returncode, out, err) == (0, "0\n", "")
    found = [query.request_id.split("-") for query in read_query_log(path)]  # any mixed line would raise
    assert len([*path.parent.iterdir()]) > 10
    for name in "ab":
        assert [int(number) for writer, number in found if writer == name] == [*range(2000)]
    turns = sum(one[0] != next_one[0] for one, next_one in pairwise(found))
    assert turns > 3, "they did not write at the same time, so nothing was tried"


def test_a_full_disk_costs_lines_and_never_half_a_line(path: Path) -> None:
    # The kernel writes up to the limit and refuses the rest, as a disk does that fills up in the middle of a write.
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n{WRITER}"
    command = [sys.executable, "-c", limit, str(path), "a", str(1 << 20), "1", "500"]
    options = {"cwd": ROOT, "input": "go\n", "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, check=True, **options)
    content = path.read_bytes()
    assert 0 < len(content) <= 10_000 and content.endswith(b"\n")
    written = [*read_query_log(path)]
    assert float(done.stdout.removeprefix("ready\n")) == 500 - len(written) > 0


def test_a_folder_that_goes_is_told_once_and_counted_and_writing_goes_on_when_it_is_back(
    tmp_path: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "queries.jsonl"
    log = QueryLog(metrics, str(path))
    path.unlink()
    folder.rmdir()
    for expected in (1, 2):
        log.log(QUERY)
        until(lambda: lost(metrics, "not_written") == expected)  # noqa: B023 - waited for at once
    assert [record.name for record in caplog.records] == ["glow_service.telemetry.logs"]
    folder.mkdir()
    log.log(replace(QUERY, request_id="r2"))
    log.close()
    assert [query.request_id for query in read_query_log(path)] == ["r2"]


@pytest.mark.parametrize("name", ["no/such/folder/queries.jsonl", "."])
def test_a_file_that_cannot_be_written_is_an_error_at_the_start(
    tmp_path: Path, metrics: Metrics, name: str
) -> None:
    said = r"--query-log .*cannot write to .*name a file in an existing folder"
    with pytest.raises(ConfigError, match=said):
        QueryLog(metrics, str(tmp_path / name))


def test_a_disk_that_hangs_fills_the_line_and_nobody_waits(
    open_log: Open, path: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING", 50)
    monkeypatch.setattr(logs, "CLOSE_WITHIN_S", 0.3)
    log = open_log()
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as long as this is held, the thread's next write does not return
        log.log(QUERY)
        until(lambda: not log._log._waiting)
        started = time.perf_counter()
        for _ in range(60):
            log.log(QUERY)
        log.close()
        assert time.perf_counter() - started < 2
    assert lost(metrics, "queue_full") == 10


def test_a_query_that_is_no_json_is_lost_alone(open_log: Open, path: Path, metrics: Metrics) -> None:
    log = open_log()
    log.log(replace(QUERY, filter=object()))
    log.log(replace(QUERY, query="\ud800"))
    log.log(QUERY, b"no page")
    log.log(QUERY)
    log.close()
    assert len([*read_query_log(path)]) == 1
    assert lost(metrics, "not_json") == 3


def test_logging_costs_less_than_20_microseconds(open_log: Open) -> None:
    log = open_log(share=0.5)
    costs = []
    for batch in range(20):
        ids = [f"{batch}-{number}" for number in range(100)]
        started = time.perf_counter()
        for request_id in ids:
            log.log(LoggedQuery(request_id, "how do bees find home", "dense", 10, 0, "v", 3.1), b'"hits":[]')
        costs.append((time.perf_counter() - started) / len(ids))
    log.close()
    assert min(costs) < 20e-6


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "{}", '{"query": "bees"}', '{"degraded": [], "hits": [], "x": 1}']
)
def test_a_line_of_something_else_is_skipped_and_named(path: Path, write_log: Open, line: str) -> None:
    write_log(QUERY)
    path.write_text(path.read_text() + line + "\n")
    skipped = SkippedLines()
    assert len([*read_query_log(path, skipped)]) == 1
    assert (skipped.count, skipped.first[:43]) == (1, "queries.jsonl:2: not a line of a query log:")


def test_a_last_line_that_is_still_being_written_is_left_out(path: Path, write_log: Open) -> None:
    write_log(QUERY)
    path.write_bytes(path.read_bytes() * 2 + path.read_bytes()[:40])
    assert len([*read_query_log(path)]) == 2


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
