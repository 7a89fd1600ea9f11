"""Measures overload: open-loop arrivals at 0.5, 1, 2 and 4 times the service's capacity.

python -m benchmarks.serving.overload --index-root INDEX_ROOT --data $DATA/tldr

The service runs on one core; the generator (openloop.c, compiled here; Poisson arrivals) and a probe of /healthz run on
the other. Capacity is the highest rate of a ladder at which all requests succeed, none with 429, and p99 stays within
the deadline. Latency counts from a request's due time.
"""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.report import emit, percentiles, table, verdict
from benchmarks.serving.generators import Answers, OpenLoop, run_wrk
from benchmarks.serving.probe import HealthProbe
from benchmarks.serving.servers import Running, our_service, running
from benchmarks.serving.workload import query_texts, search_request, write_requests

LADDER = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4)
"""Rates to try, as fractions of the rate of a closed loop of 32 clients."""
LOADS = (0.5, 1.0, 2.0, 4.0)
MIN_GOODPUT = 0.8
MAX_REFUSAL_MS = 50.0
MAX_HEALTH_MS = 100.0
Level = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """The parts of one measurement."""

    server: Running
    generator: OpenLoop
    requests: Path
    deadline_ms: int


def main(
    index_root: Annotated[Path, typer.Option(help="Index root to serve.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder whose queries are asked.")],
    seconds: Annotated[float, typer.Option(help="Of each load.")] = 30,
    step_seconds: Annotated[float, typer.Option(help="Of each rate tried to find the capacity.")] = 8,
    rate: Annotated[float, typer.Option(help="Capacity in requests a second; 0 finds it.")] = 0.0,
    deadline_ms: Annotated[int, typer.Option(help="The service's default deadline.")] = 2_000,
    server_core: Annotated[str, typer.Option(help="Core of the service.")] = "0",
    load_core: Annotated[str, typer.Option(help="Core of generator and probe.")] = "1",
    flags: Annotated[str, typer.Option(help="More flags of the service.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Finds the capacity, then applies each load."""
    os.sched_setaffinity(0, {int(load_core)})  # the probe is this process
    settings = ["--cache-entries", "0", "--default-timeout-ms", str(deadline_ms), *flags.split()]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        requests = write_requests(folder / "requests.txt", map(search_request, query_texts(data)))
        generator = OpenLoop(folder, load_core)
        with running(our_service(index_root, *settings), folder, server_core) as server:
            bench = Bench(server, generator, requests, deadline_ms)
            closed = run_wrk(server.url, requests, 32, step_seconds, load_core).per_second
            capacity = rate or find_capacity(bench, closed, step_seconds)
            levels = [apply(bench, capacity, load, seconds) for load in LOADS]
    report = {
        "options": {"seconds": seconds, "deadline_ms": deadline_ms, "flags": flags},
        "closed_loop_per_second": round(closed, 1),
        "capacity_per_second": round(capacity, 1),
        "levels": levels,
        "verdicts": _verdicts(levels, deadline_ms),
    }
    emit(report, _markdown(report), json_file, markdown_file)


def find_capacity(bench: Bench, closed: float, seconds: float) -> float:
    """The highest rate of the ladder that is served completely; stops at a rate that fails twice."""
    best = 0.0
    for share in LADDER:
        if not any(_is_served(bench, share * closed, seconds, seed) for seed in (1, 2)):
            break
        best = share * closed
    if not best:
        raise RuntimeError(
            f"not even {LADDER[0] * closed:.0f} requests/s are served completely; is the machine busy?"
        )
    return best


def _is_served(bench: Bench, rate: float, seconds: float, seed: int) -> bool:
    answers = bench.generator.at_rate(bench.server.port, bench.requests, rate, seconds, seed)
    p99 = percentiles(answers.latency_ms)["p99"]
    sys.stderr.write(f"{rate:.0f} requests/s: {dict(answers.counts())}, p99 {p99} ms\n")
    return set(answers.counts()) == {"200"} and p99 is not None and p99 <= bench.deadline_ms


def apply(bench: Bench, capacity: float, load: float, seconds: float) -> Level:
    """Applies one load for a while, and probes the service meanwhile."""
    with HealthProbe(bench.server.port) as probe:
        answers = bench.generator.at_rate(bench.server.port, bench.requests, load * capacity, seconds, seed=3)
    level = {
        "load": load,
        "rate": round(load * capacity, 1),
        **_describe(answers, bench.deadline_ms, seconds),
    }
    level["health_ms"] = percentiles(probe.latency_ms)
    level["health_failed"] = probe.failed
    sys.stderr.write(f"{level}\n")
    return level


def _describe(found: Answers, deadline_ms: int, seconds: float) -> Level:
    accepted = found.latencies(200)
    # Requests still in progress at the end would count for a load that was not sustainable.
    ended = found.due_s + found.latency_ms / 1e3 <= seconds
    good = (found.status == 200) & (found.latency_ms <= deadline_ms) & ended
    return {
        "sent": len(found),
        "statuses": dict(found.counts()),
        "goodput": round(int(good.sum()) / seconds, 1),
        "accepted_ms": percentiles(accepted),
        "refused_ms": percentiles(found.latencies(429)),
        "other": int(((found.status != 200) & (found.status != 429)).sum()),
        "generator_lag_ms": percentiles(found.lag_ms),
    }


def _verdicts(levels: list[Level], deadline_ms: int) -> list[dict[str, object]]:
    at = {level["load"]: level for level in levels}
    kept = round(at[4.0]["goodput"] / max(at[1.0]["goodput"], 1e-9), 3)
    accepted, refused = at[4.0]["accepted_ms"]["p99"], at[4.0]["refused_ms"]["p99"]
    others = sum(level["other"] for level in levels)
    health = max(level["health_ms"]["max"] for level in levels)
    silent = sum(level["health_failed"] for level in levels)
    return [
        verdict(f"goodput at 4x >= {MIN_GOODPUT} of that at 1x", kept, kept >= MIN_GOODPUT),
        verdict(
            f"at 4x accepted p99 <= {deadline_ms} ms",
            accepted,
            accepted is not None and accepted <= deadline_ms,
        ),
        verdict(
            f"at 4x refused with 429, p99 within {MAX_REFUSAL_MS:g} ms",
            refused,
            refused is not None and refused <= MAX_REFUSAL_MS,
        ),
        verdict("every answer is a 200 or a 429", others, others == 0),
        verdict(
            f"/healthz always below {MAX_HEALTH_MS:g} ms, never failed",
            health,
            health < MAX_HEALTH_MS and not silent,
        ),
    ]


def _markdown(report: dict[str, Any]) -> str:
    head = "load|arrivals/s|goodput/s|200|429|other|accepted p50 ms|p99 ms|429 p50 ms|p99 ms|max ms|/healthz p50 ms|max ms|generator lag p99 ms"
    rows = [
        [
            *(f"{level['load']:g} x", level["rate"], level["goodput"]),
            *(level["statuses"].get(status, 0) for status in ("200", "429")),
            *(level["other"], level["accepted_ms"]["p50"], level["accepted_ms"]["p99"]),
            *(level["refused_ms"][name] for name in ("p50", "p99", "max")),
            *(level["health_ms"]["p50"], level["health_ms"]["max"], level["generator_lag_ms"]["p99"]),
        ]
        for level in report["levels"]
    ]
    capacity = f"Capacity {report['capacity_per_second']:g} requests/s (closed loop, 32 clients: {report['closed_loop_per_second']:g})."
    return f"{capacity}\n\n{table(head.split('|'), rows)}"


if __name__ == "__main__":
    typer.run(main)
