"""Measures the gain by the shared cache: a new worker without Redis, and with a Redis that others filled.

python -m benchmarks.serving.redis_gain --index-root INDEX_ROOT --data $DATA/tldr

Hypothesis: Redis helps while a process's own cache is cold (a new replica, a rolling update), but not when it is warm.
Each round starts, in alternating order, a worker without Redis and one with a Redis that an earlier worker filled with
the same stream of queries (Zipf, so few are hot). It measures queries per second, CPU and latency in the first seconds,
and again after the own cache has seen the stream. Nothing else should run on the machine.
"""

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from redis import Redis
from redis.exceptions import RedisError

from benchmarks.report import emit, table
from benchmarks.serving.load import (
    free_port,
    our_service,
    query_texts,
    run_wrk,
    running,
    search_request,
    write_requests,
)

START_TIMEOUT_S = 20.0


@contextmanager
def redis_server(folder: Path, cores: str) -> Iterator[str]:
    """Runs an empty redis-server on a free port that saves nothing to disk; yields its address for `--redis-url`."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    command = ["taskset", "-c", cores, "redis-server", *options, "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(port):
            if time.monotonic() > deadline:
                raise RuntimeError("redis-server did not start; is it installed?")
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return bool(Redis(port=port, socket_timeout=5).ping())
    except RedisError:
        return False


CLIENTS = 8
HOT = 1.1
"""Exponent of the query frequencies (Zipf)."""
REQUESTS = 200_000
COLD, WARM = "first seconds", "later"


def main(
    index_root: Annotated[Path, typer.Option(help="Index root to serve.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder whose queries are asked.")],
    seconds: Annotated[float, typer.Option(help="Of each measurement.")] = 5,
    rounds: Annotated[int, typer.Option(help="Of both, in turns.")] = 5,
    cores: Annotated[str, typer.Option(help="Cores of all.")] = "0,1",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Measures both, cold and warm, and the ratio of each round."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        requests = write_requests(folder / "requests.txt", map(search_request, zipf(query_texts(data))))
        with redis_server(folder, cores) as url:
            forms = {"without Redis": (), "with a filled Redis": ("--redis-url", url)}
            _measure(index_root, forms["with a filled Redis"], requests, folder, 3 * seconds, cores)
            rows: list[dict[str, Any]] = []
            for number in range(rounds):
                for name in sorted(forms, reverse=bool(number % 2)):
                    found = _measure(index_root, forms[name], requests, folder, seconds, cores)
                    rows += [
                        {"form": name, "round": number, "when": when, **row} for when, row in found.items()
                    ]
    summary = _summary(rows)
    emit({"rows": rows, "summary": summary}, _markdown(summary), json_file, markdown_file)


def zipf(texts: list[str]) -> list[str]:
    """A stream in which the n-th text has a frequency proportional to n to the power of -1.1."""
    weights = np.arange(1, len(texts) + 1, dtype=np.float64) ** -HOT
    rows = np.random.default_rng(0).choice(len(texts), size=REQUESTS, p=weights / weights.sum())
    return [texts[row] for row in rows]


def _measure(
    root: Path, flags: tuple[str, ...], requests: Path, folder: Path, seconds: float, cores: str
) -> dict[str, dict[str, float]]:
    """Measures a new worker: its first seconds, and as many after its own cache is warm."""
    with running(our_service(root, "--workers", "1", *flags), folder, cores) as server:
        rows = {}
        for when in (COLD, WARM):
            before = server.cpu_s()
            closed = run_wrk(server.url, requests, CLIENTS, seconds, cores)
            rows[when] = {
                "per_second": closed.per_second,
                "p50_ms": closed.p50_ms,
                "p99_ms": closed.p99_ms,
                "cpu_ms": 1e3 * (server.cpu_s() - before) / max(closed.requests, 1),
            }
    return rows


def _summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over rounds, and the median ratio of both forms' queries per second in a round."""
    summary = []
    for when in (COLD, WARM):
        speeds = {}
        for form in sorted({row["form"] for row in rows}):
            chosen = [row for row in rows if (row["form"], row["when"]) == (form, when)]
            speeds[form] = [row["per_second"] for row in chosen]
            medians = {
                name: round(statistics.median(row[name] for row in chosen), 3)
                for name in ("per_second", "p50_ms", "p99_ms", "cpu_ms")
            }
            summary.append({"when": when, "form": form, **medians})
        ratios = [mine / other for mine, other in zip(*speeds.values(), strict=True)]
        summary[-2]["gain"] = round(statistics.median(ratios), 2)
        summary[-2]["gains"] = [round(ratio, 2) for ratio in sorted(ratios)]
    return summary


def _markdown(summary: list[dict[str, Any]]) -> str:
    head = ["own cache", "", "queries/s", "p50 ms", "p99 ms", "CPU ms/query", "queries/s beside none"]
    columns = ("when", "form", "per_second", "p50_ms", "p99_ms", "cpu_ms", "gain")
    return table(head, [[row.get(name) for name in columns] for row in summary])


if __name__ == "__main__":
    typer.run(main)
