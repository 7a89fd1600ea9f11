"""Measures the service's memory: its growth over 50,000 queries of mixed length, and the cost of another worker.

python -m benchmarks.serving.memory --index-root INDEX_ROOT --data $DATA/tldr [--leak]

Growth is resident memory after all queries minus that after half of them. With `--leak` the check runs on a service
that keeps every request, and must fail. Workers are compared by PSS, which counts a page shared by n processes as
1/n, after each has served.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.report import emit, table, verdict
from benchmarks.serving.generators import OpenLoop
from benchmarks.serving.servers import ROOT, ServerSpec, our_service, running
from benchmarks.serving.workload import mixed_texts, query_texts, search_request, write_requests
from glow_service.settings import Settings

MAX_GROWTH_MB = 20.0
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
    leak: Annotated[bool, typer.Option(help="Plant a leak: the check must fail.")] = False,
    cores: Annotated[str, typer.Option(help="Cores of all.")] = "0,1",
    flags: Annotated[str, typer.Option(help="More flags of the service.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Sends queries and reads the memory; exits with status 1 if the check does not have the expected result."""
    texts = mixed_texts(query_texts(data), queries)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        spec = _leaking(index_root) if leak else our_service(index_root, *flags.split())
        samples = growth(spec, texts, folder, clients, cores)
        shared = []
        for number in () if leak else map(int, workers.split()):
            settings = ["--workers", str(number), *flags.split()]
            shared.append(workers_memory(our_service(index_root, *settings), number, texts, folder, cores))
    grown = round(samples[-1]["rss_mb"] - samples[len(samples) // 2]["rss_mb"], 1)
    failed = sum(sample["failed"] for sample in samples)
    statuses = [status for sample in samples for status in sample.get("statuses", {})]
    bar = f"second half of {queries} queries grows < {MAX_GROWTH_MB:g} MB"
    verdicts = [
        verdict(f"{bar}, leak planted: must fall short" if leak else bar, grown, grown < MAX_GROWTH_MB),
        verdict(
            f"no failed query{f' (status {sorted({*statuses})})' if failed else ''}", failed, failed == 0
        ),
    ]
    report = {"leak": leak, "samples": samples, "growth_mb": grown, "workers": shared, "verdicts": verdicts}
    emit(report, _markdown(samples, shared), json_file, markdown_file)
    raise typer.Exit(0 if (grown < MAX_GROWTH_MB) != leak and not failed else 1)


def growth(
    spec: ServerSpec, texts: list[str], folder: Path, clients: int, cores: str
) -> list[dict[str, Any]]:
    """Memory before, and after each twentieth of the queries; `failed` counts failures in that part."""
    generator = OpenLoop(folder, cores)
    step = max(1, len(texts) // SAMPLES)
    with running(spec, folder, cores) as server:
        samples = [{"queries": 0, "rss_mb": round(server.memory_mb(), 1), "failed": 0}]
        for start in range(0, step * SAMPLES, step):
            part = map(search_request, texts[start : start + step])
            requests = write_requests(folder / "requests.txt", part)
            answers = generator.in_flight(server.port, requests, clients, step)
            statuses = Counter(answers.status[answers.status != 200].tolist())
            failed = statuses.total()
            rss_mb = round(server.memory_mb(), 1)
            samples.append(
                {"queries": start + step, "rss_mb": rss_mb, "failed": failed, "statuses": dict(statuses)}  # type: ignore[dict-item]  # not typed by its library
            )
    return samples


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


def _leaking(index_root: Path) -> ServerSpec:
    """The wrapped app, with the settings that `our_service` would give."""
    plain = our_service(index_root)
    settings = Settings(index_root=index_root.resolve(), access_log=False, page=False, log_level="warning")
    paths = f"{Path(__file__).resolve().parent}:{ROOT}"
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "benchmarks.serving.leaking_app:leaking",
        "--factory",
        "--port",
        "{port}",
    ]
    return ServerSpec(
        "leaking",
        [*command, "--no-access-log", "--log-level", "warning"],
        plain.ready,
        {**settings.to_environment(), "PYTHONPATH": paths},
    )


def _markdown(samples: list[dict[str, Any]], shared: list[dict[str, Any]]) -> str:
    chosen = [samples[0], *(samples[len(samples) * part // 4] for part in (1, 2, 3)), samples[-1]]
    text = table(["queries", "resident MB"], [[row["queries"], row["rss_mb"]] for row in chosen])
    if not shared:
        return text
    rows = []
    for before, row in zip([None, *shared], shared, strict=False):
        more = (row["pss_mb"] - before["pss_mb"]) / (row["workers"] - before["workers"]) if before else None
        rows.append([row["workers"], row["pss_mb"], row["rss_mb"], more])
    return f"{text}\n\n{table(['workers', 'PSS MB', 'sum of RSS MB', 'PSS MB of one more'], rows)}"


if __name__ == "__main__":
    typer.run(main)
