"""Compares GLOW's service with four others over HTTP: queries per second, latency and nDCG@10, on the same cores.

python -m benchmarks.serving.peers --data $DATA/tldr --data $DATA/medquad --peers-python PEERS/bin/python

PEERS is an environment with benchmarks/serving/requirements.txt. One server after another starts on the same cores,
warms up, answers the judged sample in order (nDCG@10), and is loaded by wrk at each number of clients with distinct
queries. All keep their defaults except the access log; GLOW's runs without its cache.
"""

import http.client
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import emit, table, verdict
from benchmarks.serving.contenders import OURS, OURS_DENSE, PEERS, Contender, Site, build, ours, peer
from benchmarks.serving.generators import Closed, run_wrk
from benchmarks.serving.servers import Running, running
from benchmarks.serving.workload import query_texts, send, write_requests
from glow.artifact import default_model
from glow.evaluation import Task, evaluate, find_tasks
from glow.records import Hit

WARM_SHARE = 0.15
"""Fraction of the query texts for warm-up; the others are for measuring."""
MIN_FACTORS = {"a": 12.0, "b": 4.0, "c": 1.0, "d": 1.0}
"""Targets of a peer's server CPU time per query over GLOW's; queries per second include the load generator's CPU use."""
FACTOR_CLIENTS = 8


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
    peers_python: Annotated[Path, typer.Option(help="Python of the peers' environment.")],
    cache: Annotated[Path, typer.Option(help="What is built once.")] = Path("runs/serving"),
    contender: Annotated[
        list[str] | None, typer.Option(help="GLOW, 'GLOW dense', a, b, c, d; may be repeated. Default: all.")
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
    names = contender or [OURS, OURS_DENSE, *PEERS]
    numbers = [int(number) for number in clients.split()]
    plan = Plan(numbers, seconds, warm_up, judged, split, server_cores, load_cores, cache)
    rows: list[dict[str, Any]] = []
    for folder in data:
        site = Site(folder, cache, peers_python, documents)
        build(site, names, model or default_model())
        for name in () if build_only else names:
            entrant = peer(site, name, peer_workers) if name in PEERS else ours(site, name, flags.split())
            rows += measure(site, entrant, plan)
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
            before = server.cpu_s()
            closed = run_wrk(server.url, cold, clients, seconds, plan.load_cores)
            cpu_ms = 1e3 * (server.cpu_s() - before) / max(closed.requests, 1)
            rows.append(_row(site, entrant, clients, closed, quality, cpu_ms))
            sys.stderr.write(f"{json.dumps(rows[-1])}\n")
    return rows


def _row(
    site: Site, entrant: Contender, clients: int, found: Closed, quality: float | None, cpu_ms: float
) -> dict[str, Any]:
    return {
        "data": site.data.name,
        "contender": entrant.key,
        "clients": clients,
        "per_second": round(found.per_second, 2),
        "nDCG@10": quality,
        "server_cpu_ms": round(cpu_ms, 3),
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
    """Adds to each row GLOW's queries per second over its own (`factor`), and its server CPU per query over GLOW's."""
    for row in rows:
        same = [r for r in rows if (r["data"], r["clients"]) == (row["data"], row["clients"])]
        for name, key in ((OURS, "cpu_factor"), (OURS_DENSE, "cpu_factor_dense")):
            mine = next((r for r in same if r["contender"] == name), None)
            known = mine and row["per_second"] and mine["server_cpu_ms"]
            row[key] = round(row["server_cpu_ms"] / mine["server_cpu_ms"], 2) if mine and known else None
            if name == OURS:
                row["factor"] = round(mine["per_second"] / row["per_second"], 2) if mine and known else None


def _verdicts(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    found = []
    for row in rows:
        if row["contender"] not in PEERS:
            continue
        least = MIN_FACTORS[row["contender"]] if row["clients"] == FACTOR_CLIENTS else 1.0
        bar = f"{row['data']}, {row['clients']} clients: ({row['contender']}) takes {least:g} x GLOW's CPU"
        for key, kind in (("cpu_factor_dense", "dense"), ("cpu_factor", "hybrid")):
            found.append(verdict(f"{bar}, {kind}", row[key], (row[key] or 0.0) >= least))
    for mine in (row for row in rows if row["contender"] == OURS):
        same = (mine["data"], mine["clients"])
        others = [r for r in rows if (r["data"], r["clients"]) == same and r["requests"]]
        if mine not in others:
            continue
        for measure_ in ("p50_ms", "p99_ms"):
            best = min(row[measure_] for row in others)
            bar = f"{mine['data']}, {mine['clients']} clients: the lowest {measure_[:3]}"
            found.append(verdict(bar, mine[measure_], mine[measure_] == best))
    failed = sum(row["errors"] + row["repeats"] for row in rows)
    return [*found, verdict("no errors and no repeated queries", failed, failed == 0)]


def _markdown(rows: list[dict[str, Any]]) -> str:
    head = "data|server|clients|queries/s|p50 ms|p99 ms|errors|server CPU ms/query|nDCG@10|queries GLOW / peer|CPU peer / GLOW|CPU peer / GLOW dense"
    names = {OURS: OURS, OURS_DENSE: OURS_DENSE, **{key: f"({key}) {name}" for key, name in PEERS.items()}}
    measured = ("clients", "per_second", "p50_ms", "p99_ms", "errors", "server_cpu_ms", "nDCG@10")
    columns = (*measured, "factor", "cpu_factor", "cpu_factor_dense")
    cells = [
        [row["data"], names[row["contender"]], *(row[column] for column in columns)]
        for row in sorted(rows, key=lambda row: (row["data"], row["clients"]))
    ]
    return table(head.split("|"), cells)


if __name__ == "__main__":
    typer.run(main)
