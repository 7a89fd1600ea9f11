"""Measures how requests that wait for a write delay searches: `POST /documents?wait=visible` over a long log.

    python -m benchmarks.waiters --index-root INDEX_ROOT

One service has one worker. A client sends one search after another, alternating between phases with and without waiting
requests, so that other load affects both. Median and 99th percentile are over all searches of a kind.
"""

import hashlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import httpx
import numpy as np
import typer

from benchmarks.machine import machine
from tests.attacks.harness import serving

KEY = "a-key-for-writing"
WRITE = {"X-API-Key": KEY}


def main(
    index_root: Annotated[Path, typer.Option(help="An index root; it is not changed.")],
    waiters: Annotated[int, typer.Option(min=1, help="Requests that wait.")] = 60,
    log_mb: Annotated[int, typer.Option(min=1, help="Megabytes of the log that waits.")] = 11,
    searches: Annotated[int, typer.Option(min=10, help="Searches of each turn.")] = 500,
    turns: Annotated[int, typer.Option(min=1, help="Turns of each kind.")] = 4,
) -> None:
    """Prints a Markdown table."""
    typer.echo(", ".join(f"{name} {value}" for name, value in machine().items()))
    with TemporaryDirectory() as folder:
        flags = (
            "--write-key",
            hashlib.sha256(KEY.encode()).hexdigest(),
            "--ingest-folder",
            str(Path(folder) / "log"),
        )
        with serving(index_root, *flags, "--workers", "1") as service:
            body = {"documents": [{"_id": f"l/{each}", "text": "words " * 16_000} for each in range(10)]}
            for _ in range(log_mb):
                httpx.post(
                    f"{service.url}/documents", json=body, headers=WRITE, timeout=60
                ).raise_for_status()
            taken: dict[str, list[float]] = {"quiet": [], f"{waiters} wait": []}
            for turn in range(turns):
                taken["quiet"] += _search(service.url, searches, turn)
                with ThreadPoolExecutor(waiters) as pool:
                    waiting = [pool.submit(_wait, service.url, number) for number in range(waiters)]
                    time.sleep(1.0)
                    taken[f"{waiters} wait"] += _search(service.url, searches, turn + turns)
                    assert not any(each.done() for each in waiting), "the turn was longer than they wait"
        shutil.rmtree(Path(folder) / "log", ignore_errors=True)
    typer.echo("\n| | searches | p50, ms | p99, ms |\n|---|---|---|---|")
    for name, seconds in taken.items():
        low, high = np.quantile(np.array(seconds) * 1e3, [0.5, 0.99])
        typer.echo(f"| {name} | {len(seconds)} | {low:.2f} | {high:.2f} |")


def _wait(url: str, number: int) -> int:
    answer = httpx.post(
        f"{url}/documents?wait=visible&wait_s=30",
        json={"_id": f"w/{number}", "text": "a wombat"},
        headers=WRITE,
        timeout=90,
    )
    return answer.status_code


def _search(url: str, count: int, turn: int) -> list[float]:
    """Seconds of each search."""
    taken = []
    with httpx.Client(base_url=url, timeout=60) as client:
        for number in range(count):
            began = time.perf_counter()
            client.post(
                "/search", json={"query": f"how do owls find home {turn} {number}"}
            ).raise_for_status()
            taken.append(time.perf_counter() - began)
    return taken


if __name__ == "__main__":
    typer.run(main)
