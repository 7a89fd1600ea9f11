"""Compares the serving speed of two checkouts by the same queries over HTTP, alternating in one run.

    python -m benchmarks.before_after --before CHECKOUT --before-index INDEX_ROOT --index-root INDEX_ROOT --data $DATA/tldr

Each service has one worker and its own index, built by its own checkout. One client sends each query once to each
service, in random order. Ratios of medians and 99th percentiles are before / after, so above 1 means faster. Their
intervals come from a bootstrap over queries. CPU is the worker's CPU time for all of its queries.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import machine
from glow.collection import read_queries

ROOT = Path(__file__).parent.parent
FIRST_PORT = 18_471
START_S = 120.0
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
    with ExitStack() as stack:
        services = [
            stack.enter_context(service(tree, root, FIRST_PORT + place))
            for place, (tree, root) in enumerate(((before.resolve(), before_index), (ROOT, index_root)))
        ]
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


@contextmanager
def service(tree: Path, root: Path, port: int) -> Iterator[tuple[httpx.Client, int]]:
    """Starts the service of a checkout; yields its client and its process."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / '.venv/import-names'}"}
    command = [
        sys.executable,
        "-m",
        "glow",
        "serve",
        "--index-root",
        str(root.resolve()),
        "--port",
        str(port),
    ]
    process = subprocess.Popen(
        [*command, "--workers", "1"], cwd=tree, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_until_ready(client)
            yield client, process.pid
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(client: httpx.Client) -> None:
    """Waits until the service responds."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise typer.Exit(1)


def ask(
    services: list[tuple[httpx.Client, int]], texts: list[str], retriever: str
) -> tuple[Times, list[float]]:
    """Seconds of each query, [2, n], and the CPU seconds of each service."""
    times = np.empty((len(services), len(texts)))
    cpu = [-cpu_s(process) for _, process in services]
    for place, text in enumerate(texts):
        # In random order, so that one service does not always profit from caches that the other filled.
        for who in np.random.default_rng(place).permutation(len(services)).tolist():
            started = time.perf_counter()
            services[who][0].post("/search", json={"query": text, "retriever": retriever}).raise_for_status()
            times[who, place] = time.perf_counter() - started
    return times, [spent + cpu_s(process) for spent, (_, process) in zip(cpu, services, strict=True)]


def cpu_s(process: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ratio_of(times: Times, quantile: float) -> tuple[float, float, float]:
    """The ratio of a quantile before to the same after, with its 95 % interval."""
    drawn = np.random.default_rng(0).integers(0, times.shape[1], (SAMPLES, times.shape[1]))
    before, after = (np.quantile(each[drawn], quantile, axis=1) for each in times)
    low, high = np.quantile(before / after, [0.025, 0.975])
    whole = np.quantile(times, quantile, axis=1)
    return float(low), float(whole[0] / whole[1]), float(high)


if __name__ == "__main__":
    typer.run(main)
