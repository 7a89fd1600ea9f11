"""Compares GLOW's service with eight others over HTTP, by quality, speed, CPU time, memory and time to build.

python -m benchmarks.peers_serving --data $DATA/tldr

The first run installs the peers in CACHE/env from benchmarks/serving/requirements.txt and builds all indexes; later runs
use them again. Needed are Linux and wrk. One server after another starts on the same cores, warms up, answers the judged
sample in order (nDCG@10), and is loaded by wrk at each number of clients with distinct queries. All keep their defaults
except the access log; GLOW's runs without its cache. `--documents 1500 --clients 8 --seconds 3` is a short trial.
"""

import http.client
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Timer
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import emit, table, verdict
from benchmarks.serving.contenders import (
    OURS,
    OURS_DENSE,
    OURS_WORDS,
    PEERS,
    WORDS_ONLY,
    Contender,
    Site,
    build,
    build_seconds,
    contender,
    peers_environment,
)
from benchmarks.serving.load import Closed, Running, query_texts, run_wrk, running, send, write_requests
from glow.artifact import default_model
from glow.evaluation import Task, evaluate, find_tasks
from glow.records import Hit

WARM_SHARE = 0.15
"""Fraction of the query texts for warm-up; the others are for measuring."""
MIN_FACTORS = {"b": {OURS: 2.2, OURS_DENSE: 3.2}}
"""Targets of a peer's server CPU time per query over GLOW's at `FACTOR_CLIENTS`; elsewhere, and of the others: 1.

Queries per second are no target, because they include the load generator's CPU use.
"""
FACTOR_CLIENTS = 8
FACTORS = {OURS: "cpu_factor", OURS_DENSE: "cpu_factor_dense"}
"""Kind of GLOW's search -> column of the CPU time over its own."""
GLOWS = (OURS, OURS_DENSE, OURS_WORDS)


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurement of each server."""

    clients: Sequence[int]
    seconds: float
    warm_up: float
    judged: int
    split: str
    server_cores: str
    load_cores: str
    logs: Path


def main(
    data: Annotated[list[Path], typer.Option(help="BEIR folder; may be given several times.")],
    peers_python: Annotated[
        Path | None, typer.Option(help="Python of the peers' environment; default: made in the cache.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="What is built once.")] = Path("runs/serving"),
    only: Annotated[
        list[str] | None,
        typer.Option("--contender", help="'GLOW dense', a and so on; may be repeated. Default: all."),
    ] = None,
    clients: Annotated[str, typer.Option(help="Requests in flight, separated by blanks.")] = "1 8 32",
    seconds: Annotated[float, typer.Option(help="Of each measurement; less where the queries run out.")] = 10,
    warm_up: Annotated[float, typer.Option(help="Seconds before it.")] = 3,
    judged: Annotated[int, typer.Option(help="Judged queries for nDCG@10; 0 for none.")] = 500,
    split: Annotated[str, typer.Option(help="Their judgements, qrels/SPLIT.tsv.")] = "dev",
    documents: Annotated[int, typer.Option(help="Documents of each corpus; 0 for all.")] = 0,
    model: Annotated[Path | None, typer.Option(help="Our model; default: models/DEFAULT.")] = None,
    server_cores: Annotated[str, typer.Option(help="Of every server, as taskset reads them.")] = "0,1",
    load_cores: Annotated[str, typer.Option(help="Of wrk.")] = "0,1",
    peer_workers: Annotated[int, typer.Option(help="uvicorn's workers of each peer.")] = 1,
    flags: Annotated[str, typer.Option(help="More flags of our service.")] = "",
    build_only: Annotated[bool, typer.Option(help="Fill the cache and measure nothing.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Builds, starts, measures and compares."""
    names = only or [*GLOWS, *PEERS]
    if unknown := sorted(set(names) - {*GLOWS, *PEERS}):
        raise typer.BadParameter(f"no contender {unknown[0]!r}; there are {', '.join([*GLOWS, *PEERS])}")
    if not build_only and shutil.which("wrk") is None:
        raise typer.BadParameter("wrk is not installed; apt install wrk")
    numbers = [int(number) for number in clients.split()]
    plan = Plan(numbers, seconds, warm_up, judged, split, server_cores, load_cores, cache)
    cache.mkdir(parents=True, exist_ok=True)
    needs_peers = set(names) & set(PEERS)
    python = peers_python or (peers_environment(cache) if needs_peers else Path(sys.executable))
    rows: list[dict[str, Any]] = []
    for folder in data:
        site = Site(folder, cache, python, documents)
        build(site, names, model or default_model())
        for name in () if build_only else names:
            rows += measure(site, contender(site, name, peer_workers, flags.split()), plan)
    if build_only:
        return
    _add_factors(rows)
    options = {"clients": numbers, "seconds": seconds, "peer_workers": peer_workers, "flags": flags}
    report = {"options": {**options, "documents": documents}, "rows": rows, "verdicts": _verdicts(rows)}
    emit(report, _markdown(rows), json_file, markdown_file)


def measure(site: Site, entrant: Contender, plan: Plan) -> list[dict[str, Any]]:
    """Measures one server over one dataset: a row for each number of clients."""
    texts = query_texts([site.data])
    edge = int(len(texts) * WARM_SHARE)
    warm = write_requests(plan.logs / "warm.txt", map(entrant.request, texts[:edge]))
    cold = write_requests(plan.logs / "requests.txt", map(entrant.request, texts[edge:]))
    rows = []
    with running(entrant.spec, plan.logs, plan.server_cores) as server:
        run_wrk(server.url, warm, max(plan.clients), plan.warm_up, plan.load_cores)
        quality = judge(site, entrant, server, plan)
        for clients in plan.clients:
            pace = run_wrk(server.url, warm, clients, plan.warm_up, plan.load_cores).per_second
            seconds = min(plan.seconds, 0.8 * (len(texts) - edge) / max(pace, 1.0))
            row = _load(server, cold, clients, seconds, plan.load_cores)
            about = {"data": site.data.name, "contender": entrant.key, "clients": clients}
            rows.append(about | {"nDCG@10": quality} | row | {"build_s": build_seconds(site, entrant.key)})
            sys.stderr.write(f"{json.dumps(rows[-1])}\n")
    return rows


def _load(server: Running, requests: Path, clients: int, seconds: float, cores: str) -> dict[str, Any]:
    """Loads a running server; its memory is read halfway, when all its threads and buffers are in use."""
    memory: list[float] = []
    halfway = Timer(seconds / 2, lambda: memory.append(server.memory_mb("Pss")))
    before = server.cpu_s()
    halfway.start()
    found: Closed = run_wrk(server.url, requests, clients, seconds, cores)
    cpu_ms = 1e3 * (server.cpu_s() - before) / max(found.requests, 1)
    halfway.join()
    return {
        "per_second": round(found.per_second, 2),
        "server_cpu_ms": round(cpu_ms, 3),
        "memory_mb": round(memory[0], 1),
        **{name: round(value, 3) for name, value in asdict(found).items()},
    }


def judge(site: Site, entrant: Contender, server: Running, plan: Plan) -> float | None:
    """nDCG@10 of a fixed sample of judged queries, one after another over the measured route."""
    if not plan.judged:
        return None
    task = find_tasks(site.data, [plan.split])[0]
    chosen = np.random.default_rng(0).permutation(len(task.queries))[: plan.judged]
    sample = [task.queries[position] for position in chosen]
    run = {}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for query in sample:
        status, body = send(connection, entrant.request(query.text))
        if status != 200:
            raise RuntimeError(f"{server.name} answered {status} to a judged query: {body[:200]!r}")
        ids = entrant.ids(json.loads(body))
        run[query.id] = [Hit(found, 1.0 / rank) for rank, found in enumerate(ids, start=1)]
    connection.close()
    return _ndcg(task, run)


def _ndcg(task: Task, run: dict[str, list[Hit]]) -> float:
    qrels = [qrel for qrel in task.qrels if qrel.query_id in run]
    return round(evaluate(run, qrels, ["nDCG@10"], 1).means["nDCG@10"], 4)


def _add_factors(rows: list[dict[str, Any]]) -> None:
    """Adds to each row its server CPU per query over that of each kind of GLOW's search; None without one of them."""
    for row in rows:
        for name, key in FACTORS.items():
            mine = next((r for r in _beside(row, rows) if r["contender"] == name), None)
            known = mine and mine["server_cpu_ms"] and row["requests"]
            row[key] = round(row["server_cpu_ms"] / mine["server_cpu_ms"], 2) if mine and known else None


def _beside(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rows if (r["data"], r["clients"]) == (row["data"], row["clients"])]


def _verdicts(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    compared = [row for row in rows if row["contender"] in PEERS and row["contender"] not in WORDS_ONLY]
    found = []
    for row in compared:
        targets = MIN_FACTORS.get(row["contender"], {}) if row["clients"] == FACTOR_CLIENTS else {}
        bar = f"{row['data']}, {row['clients']} clients: ({row['contender']}) takes"
        for name, key in FACTORS.items():
            if row[key] is not None:
                least = targets.get(name, 1.0)
                found.append(verdict(f"{bar} {least:g} x the CPU of {name}", row[key], row[key] >= least))
    for mine in (row for row in rows if row["contender"] == OURS):
        others = [row for row in _beside(mine, compared) if row["requests"]]
        for key in ("p50_ms", "p99_ms") if others and mine["requests"] else ():
            bar = f"{mine['data']}, {mine['clients']} clients: {OURS} has the lowest {key[:3]}"
            best = min(row[key] for row in others)
            found.append(verdict(bar, mine[key], mine[key] <= best))
    failed = sum(row["errors"] + row["repeats"] for row in rows)
    return [*found, verdict("no errors and no repeated queries", failed, failed == 0)]


def _markdown(rows: list[dict[str, Any]]) -> str:
    measured = {
        "clients": "clients",
        "nDCG@10": "nDCG@10",
        "per_second": "queries/s",
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "errors": "errors",
        "server_cpu_ms": "server CPU ms/query",
        "memory_mb": "memory MB",
        "build_s": "build s",
        **{key: f"CPU over {name}" for name, key in FACTORS.items()},
    }
    cells = [
        [row["data"], _label(row["contender"]), *(row[column] for column in measured)]
        for row in sorted(rows, key=lambda row: (row["data"], row["clients"]))
    ]
    return table(["data", "server", *measured.values()], cells)


def _label(key: str) -> str:
    return f"({key}) {PEERS[key]}" if key in PEERS else key


if __name__ == "__main__":
    typer.run(main)
