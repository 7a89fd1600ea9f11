"""Compares the serving speed of two checkouts by the same queries over HTTP, alternating in one run.

    python -m benchmarks.before_after --before CHECKOUT --before-index INDEX_ROOT --index-root INDEX_ROOT --data $DATA/tldr

Each service has one worker and its own index, built by its own checkout. One client sends each query once to each
service, in random order. Ratios of medians and 99th percentiles are before / after, so above 1 means faster. Their
intervals come from a bootstrap over queries. CPU is the worker's CPU time for all of its queries.
"""

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import httpx
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import machine
from benchmarks.serving.load import ROOT, Running, ServerSpec, our_service, running
from glow.collection import read_queries

ALL_CORES = f"0-{(os.cpu_count() or 1) - 1}"
SAMPLES = 2_000
WARM = 200
Times = NDArray[np.float64]


def main(
    before: Annotated[Path, typer.Option(help="The checkout to compare with.")],
    before_index: Annotated[Path, typer.Option(help="Its index root.")],
    index_root: Annotated[Path, typer.Option(help="This checkout's index root.")],
    data: Annotated[Path, typer.Option(help="BEIR folder whose queries are asked.")],
    queries: Annotated[int, typer.Option(min=10, help="How many different ones for each retriever.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often all of it is done, with other queries.")] = 3,
) -> None:
    """Prints a Markdown table."""
    texts = list(dict.fromkeys(query.text for query in read_queries(data / "queries.jsonl")))
    drawn = iter(np.random.default_rng(0).permutation(len(texts)).tolist())
    typer.echo(", ".join(f"{name} {value}" for name, value in machine().items()))
    typer.echo(
        "\n| retriever | p50 before, ms | after | ratio, 95 % | p99 before, ms | after | ratio, 95 % | CPU, ratio |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    specs = service("before", before.resolve(), before_index), service("after", ROOT, index_root)
    with ExitStack() as stack:
        logs = Path(stack.enter_context(TemporaryDirectory()))
        services = [stack.enter_context(running(spec, logs, ALL_CORES)) for spec in specs]
        for turn in range(rounds):
            for retriever in ("dense", "hybrid"):
                asked = [texts[next(drawn)] for _ in range(queries + (0 if turn else WARM))]
                times, cpu = ask(services, asked, retriever)
                kept = times[:, -queries:]
                cells = []
                for quantile in (0.5, 0.99):
                    low, ratio, high = ratio_of(kept, quantile)
                    found = np.quantile(kept, quantile, axis=1) * 1e3
                    cells += [f"{found[0]:.2f}", f"{found[1]:.2f}", f"{ratio:.3f} ({low:.3f} to {high:.3f})"]
                typer.echo(f"| {retriever} | {' | '.join(cells)} | {cpu[0] / cpu[1]:.3f} |")


def service(name: str, tree: Path, root: Path) -> ServerSpec:
    """The service of a checkout with one worker."""
    environment = {"PYTHONPATH": f"{tree}:{tree / '.venv/import-names'}"}
    return replace(our_service(root, "--workers", "1"), name=name, environment=environment, folder=tree)


def ask(services: list[Running], texts: list[str], retriever: str) -> tuple[Times, list[float]]:
    """Seconds of each query, [2, n], and the CPU seconds of each service."""
    times = np.empty((len(services), len(texts)))
    before = [each.cpu_s() for each in services]
    clients = [httpx.Client(base_url=each.url, timeout=30) for each in services]
    for place, text in enumerate(texts):
        # In random order, so that one service does not always profit from caches that the other filled.
        for who in np.random.default_rng(place).permutation(len(services)).tolist():
            started = time.perf_counter()
            clients[who].post("/search", json={"query": text, "retriever": retriever}).raise_for_status()
            times[who, place] = time.perf_counter() - started
    return times, [each.cpu_s() - spent for each, spent in zip(services, before, strict=True)]


def ratio_of(times: Times, quantile: float) -> tuple[float, float, float]:
    """The ratio of a quantile before to the same after, with its 95 % interval."""
    drawn = np.random.default_rng(0).integers(0, times.shape[1], (SAMPLES, times.shape[1]))
    before, after = (np.quantile(each[drawn], quantile, axis=1) for each in times)
    low, high = np.quantile(before / after, [0.025, 0.975])
    whole = np.quantile(times, quantile, axis=1)
    return float(low), float(whole[0] / whole[1]), float(high)


if __name__ == "__main__":
    typer.run(main)
