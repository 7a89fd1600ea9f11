"""Measures the service's memory: its growth over 50,000 queries of mixed length, and the cost of another worker.

python -m benchmarks.serving.memory --index-root INDEX_ROOT --data $DATA/tldr
python -m benchmarks.serving.memory --index-root INDEX_ROOT --data $DATA/tldr --queries 1000000 --distinct 20000 --writes 20

Growth is resident memory after all queries minus that after half of them. `--distinct` draws that many texts by Zipf's law, so that
most responses come from the cache. `--writes` upserts so many documents after each twentieth, which the service loads, in a copy of the index. Workers are
compared by PSS, which counts a page shared by n processes as 1/n, after each has served.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import emit, table, verdict
from benchmarks.serving.load import (
    ROOT,
    OpenLoop,
    Running,
    ServerSpec,
    mixed_texts,
    our_service,
    query_texts,
    running,
    search_request,
    write_requests,
)
from glow.artifact import default_model

MAX_GROWTH_MB = 20.0
ZIPF = 1.3
"""Exponent of the popularity of texts."""
LOADED_S = 3.0
"""Time in which a service loads a new version, in seconds."""
SAMPLES = 20
"""Number of memory readings, evenly spaced over the queries."""
WARM_QUERIES = 2_000
"""Queries for each worker before the memory of workers is compared."""


def main(
    index_root: Annotated[Path, typer.Option(help="Index root to serve.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder whose queries are asked, cut and joined.")],
    queries: Annotated[int, typer.Option(help="How many.")] = 50_000,
    clients: Annotated[int, typer.Option(help="In flight.")] = 8,
    workers: Annotated[str, typer.Option(help="Numbers of workers to compare; empty for none.")] = "1 2 4",
    distinct: Annotated[int, typer.Option(help="Different texts; 0: all.")] = 0,
    writes: Annotated[int, typer.Option(help="Documents to upsert after each twentieth.")] = 0,
    cores: Annotated[str, typer.Option(help="Cores of all.")] = "0,1",
    flags: Annotated[str, typer.Option(help="More flags of the service.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Sends queries and reads the memory; exits with status 1 if it grows too much or a query fails."""
    texts = mixed_texts(query_texts(data), distinct or queries)
    if distinct:
        drawn = np.random.default_rng(0).zipf(ZIPF, queries) % distinct
        texts = [texts[place] for place in drawn.tolist()]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if writes:
            index_root = Path(shutil.copytree(index_root, folder / "index"))
        spec = our_service(index_root, *flags.split())
        samples = growth(spec, texts, folder, clients, cores, index_root, writes)
        shared = []
        for number in map(int, workers.split()):
            settings = ["--workers", str(number), *flags.split()]
            shared.append(workers_memory(our_service(index_root, *settings), number, texts, folder, cores))
    grown = round(samples[-1]["rss_mb"] - samples[len(samples) // 2]["rss_mb"], 1)
    failed = sum(sample["failed"] for sample in samples)
    statuses = [status for sample in samples for status in sample.get("statuses", {})]
    bar = f"second half of {queries} queries grows < {MAX_GROWTH_MB:g} MB"
    verdicts = [
        verdict(bar, grown, grown < MAX_GROWTH_MB),
        verdict(
            f"no failed query{f' (status {sorted({*statuses})})' if failed else ''}", failed, failed == 0
        ),
    ]
    report = {"samples": samples, "growth_mb": grown, "workers": shared, "verdicts": verdicts}
    emit(report, _markdown(samples, shared), json_file, markdown_file)
    raise typer.Exit(int(grown >= MAX_GROWTH_MB or bool(failed)))


def growth(
    spec: ServerSpec,
    texts: list[str],
    folder: Path,
    clients: int,
    cores: str,
    index_root: Path,
    writes: int = 0,
) -> list[dict[str, Any]]:
    """Memory before, and after each twentieth of the queries; `failed` counts failures in that part."""
    generator = OpenLoop(folder, cores)
    step = max(1, len(texts) // SAMPLES)
    with running(spec, folder, cores) as server:
        samples = [{"queries": 0, **_memory(server), "failed": 0}]
        for start in range(0, step * SAMPLES, step):
            part = map(search_request, texts[start : start + step])
            requests = write_requests(folder / "requests.txt", part)
            answers = generator.in_flight(server.port, requests, clients, step)
            statuses = Counter(answers.status[answers.status != 200].tolist())
            failed = statuses.total()
            samples.append(
                {"queries": start + step, **_memory(server), "failed": failed, "statuses": dict(statuses)}
            )
            if writes:
                _upsert(index_root, folder / "documents.jsonl", writes, start)
    return samples


def _memory(server: Running) -> dict[str, Any]:
    return {"rss_mb": round(server.memory_mb(), 1), "pss_mb": round(server.memory_mb("Pss"), 1)}


def _upsert(index_root: Path, file: Path, count: int, number: int) -> None:
    """Publishes a version in which some documents have other texts, and waits until the service has loaded it."""
    texts = (f"document {place} of round {number}, about volcanoes and bees" for place in range(count))
    records = ({"_id": f"memory/{place}", "text": text} for place, text in enumerate(texts))
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    command = [sys.executable, "-m", "glow", "upsert", "--model", str(default_model()), "--input", str(file)]
    subprocess.run([*command, "--index-root", str(index_root)], check=True, capture_output=True, cwd=ROOT)
    time.sleep(LOADED_S)


def workers_memory(
    spec: ServerSpec, workers: int, texts: list[str], folder: Path, cores: str
) -> dict[str, Any]:
    """PSS and RSS of a service and its workers after they have served."""
    count = WARM_QUERIES * workers
    requests = write_requests(folder / "requests.txt", map(search_request, texts[:count]))
    with running(spec, folder, cores) as server:
        OpenLoop(folder, cores).in_flight(server.port, requests, 8 * workers, count)
        return {
            "workers": workers,
            "processes": len(server.pids()),
            "pss_mb": round(server.memory_mb("Pss"), 1),
            "rss_mb": round(server.memory_mb("Rss"), 1),
        }


def _markdown(samples: list[dict[str, Any]], shared: list[dict[str, Any]]) -> str:
    chosen = [samples[0], *(samples[len(samples) * part // 4] for part in (1, 2, 3)), samples[-1]]
    rows = [[row["queries"], row["rss_mb"], row["pss_mb"]] for row in chosen]
    text = f"{table(['queries', 'resident MB', 'PSS MB'], rows)}\n\nslope of the second half: {_slope(samples):.2f} MB of PSS a 100,000 queries"
    if not shared:
        return text
    rows = []
    for before, row in zip([None, *shared], shared, strict=False):
        more = (row["pss_mb"] - before["pss_mb"]) / (row["workers"] - before["workers"]) if before else None
        rows.append([row["workers"], row["pss_mb"], row["rss_mb"], more])
    return f"{text}\n\n{table(['workers', 'PSS MB', 'sum of RSS MB', 'PSS MB of one more'], rows)}"


def _slope(samples: list[dict[str, Any]]) -> float:
    """MB of PSS a 100,000 queries, by least squares over the second half."""
    half = samples[len(samples) // 2 :]
    return float(np.polyfit([row["queries"] for row in half], [row["pss_mb"] for row in half], 1)[0]) * 1e5


if __name__ == "__main__":
    typer.run(main)
