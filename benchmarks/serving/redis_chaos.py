"""Tests the service under load with a real Redis that runs, stops, is killed, restarts and returns garbage.

python -m benchmarks.serving.redis_chaos --index-root INDEX_ROOT --data $DATA/tldr

Open-loop arrivals at half of the rate without Redis, with few hot queries and many single ones, so that the shared cache
hits, misses and fills in every phase. No search may fail, or wait longer for Redis than `redis_timeout_ms`: p99 of each
phase is compared with that of a service without Redis. After each phase, responses to hot queries are compared with
those without Redis; poisoned values are poisoned again for that. `--cache-entries` keeps the process's own cache small,
because otherwise Redis would hardly be used.
"""

import json
import re
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import emit, percentiles, table, verdict
from benchmarks.serving.generators import Answers, OpenLoop, run_wrk
from benchmarks.serving.redis_server import RedisServer
from benchmarks.serving.servers import Running, our_service, running
from benchmarks.serving.workload import Request, call, query_texts, search_request, write_requests

HOT = 1.1
"""Exponent of the query frequencies (Zipf)."""
REQUESTS = 200_000
CHECKED = 100
"""Number of the most frequent queries, whose responses are compared."""
SCORE_TOLERANCE = 1e-4
MARGIN_MS = 10.0
"""Allowance for noise, in addition to a search's time limit for Redis."""
CACHE_METRIC = "glow_cache_events_total"


@dataclass(frozen=True, slots=True)
class Bench:
    """The parts of one measurement."""

    generator: OpenLoop
    requests: Path
    rate: float
    seconds: float
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Step:
    """One state of Redis.

    Attributes:
        name: name for the report.
        event: what happens to Redis after a third of the step.
        again: whether it happens again before responses are compared.
    """

    name: str
    event: Callable[[], object] = lambda: None
    again: bool = False


def main(
    index_root: Annotated[Path, typer.Option(help="Index root to serve.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder whose queries are asked.")],
    seconds: Annotated[float, typer.Option(help="Of each phase.")] = 15,
    rate: Annotated[float, typer.Option(help="Arrivals a second; 0 is half of a closed loop's.")] = 0.0,
    redis_timeout_ms: Annotated[int, typer.Option(help="Most time that a search spends on Redis.")] = 20,
    cache_entries: Annotated[int, typer.Option(help="Of the process's own cache.")] = 1,
    cores: Annotated[str, typer.Option(help="Cores of all.")] = "0,1",
    flags: Annotated[str, typer.Option(help="More flags of the service.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Measures without Redis, then each phase with it; exits with status 1 if a search fails or a response is wrong."""
    settings = [
        "--cache-entries",
        str(cache_entries),
        "--redis-timeout-ms",
        str(redis_timeout_ms),
        *flags.split(),
    ]
    texts = query_texts(data)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        requests = write_requests(folder / "requests.txt", map(search_request, zipf(texts)))
        generator = OpenLoop(folder, cores)
        with running(our_service(index_root, *settings), folder, cores) as server:
            pace = rate or run_wrk(server.url, requests, 8, min(seconds, 5), cores).per_second / 2
            bench = Bench(generator, requests, pace, seconds, texts[:CHECKED])
            truth = _answers(server, bench)
            rows = [phase(bench, server, Step("without Redis"), truth)]
        with closing(RedisServer(folder, cores)) as redis:
            redis.start()
            with_redis = our_service(index_root, *settings, "--redis-url", redis.url)
            with running(with_redis, folder, cores) as server:
                rows += [phase(bench, server, step, truth) for step in steps(redis, seconds)]
    limit = round((rows[0]["p99_ms"] or 0.0) + redis_timeout_ms + MARGIN_MS, 1)
    report = {"rate": round(pace, 1), "rows": rows, "verdicts": _verdicts(rows, limit)}
    emit(report, _markdown(rows), json_file, markdown_file)
    raise typer.Exit(int(any(row["failed"] or row["wrong"] for row in rows)))


def steps(redis: RedisServer, seconds: float) -> list[Step]:
    """Every state of Redis, one after another."""
    return [
        Step("well, filling"),
        Step("well, filled"),
        Step("poisoned", redis.poison, again=True),
        Step("stopped (SIGSTOP)", lambda: redis.signal(signal.SIGSTOP)),
        Step("going on (SIGCONT)", lambda: redis.signal(signal.SIGCONT)),
        Step("killed (SIGKILL)", lambda: redis.signal(signal.SIGKILL)),
        Step("dead"),
        Step("restarted, empty", redis.start),
        Step("killed and restarted every second", lambda: _restart_often(redis, seconds / 2)),
    ]


def phase(bench: Bench, server: Running, step: Step, truth: list[Any]) -> dict[str, Any]:
    """Measures one state under load: latency, failed searches, wrong responses and cache events."""
    before = _cache_events(server)
    timer = threading.Timer(bench.seconds / 3, step.event)
    timer.start()
    answers = bench.generator.at_rate(server.port, bench.requests, bench.rate, bench.seconds)
    timer.join()
    if step.again:
        step.event()
    wrong = sum(not _same(now, then) for now, then in zip(_answers(server, bench), truth, strict=True))
    events = {key: value - before.get(key, 0.0) for key, value in _cache_events(server).items()}
    changed = {key: round(value) for key, value in sorted(events.items()) if value}
    row = {"phase": step.name, **_describe(answers), "wrong": wrong, "redis": changed}
    sys.stderr.write(f"{row}\n")
    return row


def _same(now: Any, then: Any) -> bool:
    """Whether documents are equal, and scores differ no more than by the other queries in a batch."""
    if isinstance(now, int) or isinstance(then, int):
        return False
    return [id_ for id_, _ in now] == [id_ for id_, _ in then] and all(
        abs(mine - other) <= SCORE_TOLERANCE for (_, mine), (_, other) in zip(now, then, strict=True)
    )


def _answers(server: Running, bench: Bench) -> list[Any]:
    """Ids and scores of the hot queries, or the status of a failed one."""
    answers: list[Any] = []
    for text in bench.texts:
        status, body = call(server.port, search_request(text))
        hits = json.loads(body)["hits"] if status == 200 else []
        answers.append([(hit["id"], hit["score"]) for hit in hits] if status == 200 else status)
    return answers


def _describe(found: Answers) -> dict[str, Any]:
    latency = percentiles(found.latencies(200))
    return {
        "requests": len(found),
        "failed": int((found.status != 200).sum()),
        "statuses": dict(found.counts()),
        **{f"{name}_ms": value for name, value in latency.items()},
    }


def _restart_often(redis: RedisServer, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        redis.signal(signal.SIGKILL)
        time.sleep(0.5)
        redis.start()
        time.sleep(0.5)


def zipf(texts: list[str]) -> list[str]:
    """A stream in which the n-th text has a frequency proportional to n to the power of -1.1."""
    weights = np.arange(1, len(texts) + 1, dtype=np.float64) ** -HOT
    rows = np.random.default_rng(0).choice(len(texts), size=REQUESTS, p=weights / weights.sum())
    return [texts[row] for row in rows]


def _cache_events(server: Running) -> dict[str, float]:
    """The service's counts of Redis events, of query vectors and responses together."""
    _, text = call(server.port, Request("/metrics"))
    counts: dict[str, float] = defaultdict(float)
    for labels, value in re.findall(CACHE_METRIC + r"\{([^}]*)\} (\S+)", text.decode()):
        names = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if names.get("tier") == "redis":
            counts[names["event"]] += float(value)
    return dict(counts)


def _verdicts(rows: list[dict[str, Any]], limit_ms: float) -> list[dict[str, object]]:
    failed = sum(row["failed"] for row in rows)
    worst = max(rows[1:], key=lambda row: row["p99_ms"] or 0.0)
    wrong = sum(row["wrong"] for row in rows)
    bar = f"p99 of every phase <= {limit_ms:g} ms (without Redis + its time-out + {MARGIN_MS:g} ms)"
    return [
        verdict("0 failed searches", failed, failed == 0),
        verdict("0 wrong answers", wrong, wrong == 0),
        verdict(bar, worst["p99_ms"], (worst["p99_ms"] or 0.0) <= limit_ms),
    ]


def _markdown(rows: list[dict[str, Any]]) -> str:
    columns = ("phase", "requests", "failed", "wrong", "p50_ms", "p99_ms", "max_ms")
    head = "Redis|searches|failed|wrong|p50 ms|p99 ms|max ms|what the cache counted of Redis"
    cells = [
        [*(row[column] for column in columns), ", ".join(f"{name} {n}" for name, n in row["redis"].items())]
        for row in rows
    ]
    return table(head.split("|"), cells)


if __name__ == "__main__":
    typer.run(main)
