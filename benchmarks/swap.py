"""Measures hot swaps under load: failed and mixed responses, p99 during swaps and at rest, memory after many swaps.

python -m benchmarks.swap --index-root INDEX_ROOT --data $DATA/tldr [--swaps 20] [--workers 1]

INDEX_ROOT has two versions of about the same size (the newest two, or `--version` twice), preferably with different
documents: every hit is checked against the version that its response names. They are linked into a private root, where
CURRENT alternates between them while two clients send distinct queries. `during` are requests that overlap the time from
a change of CURRENT until every worker has followed.
"""

import http.client
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import emit, percentiles, table, verdict
from benchmarks.serving.load import Request as Asked
from benchmarks.serving.load import Running, call, our_service, query_texts, running, search_request
from glow.artifact import IndexRoot
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS

MOST_SLOWER, MOST_GROWTH = 3.0, 1.1
FOLLOW_WITHIN_S = 600.0
CLIENTS = 2


@dataclass(eq=False)
class Client(threading.Thread):
    """Searches until it is stopped; one row per response: start, end (seconds), version, and whether it is correct."""

    port: int
    texts: list[str]
    ids: dict[str, frozenset[str]]
    rows: list[tuple[float, float, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    mixed: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.enough = threading.Event()

    def run(self) -> None:
        """Sends one request after another on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for number in range(1 << 62):
            if self.enough.is_set():
                return
            text = f"{self.texts[number % len(self.texts)]} {number // len(self.texts) or ''}"
            started = time.perf_counter()
            connection.request(
                "POST", "/search", search_request(text).body, {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            body = response.read()
            ended = time.perf_counter()
            if response.status != 200:
                self.failed.append(f"{response.status} {body[:200]!r}")
                continue
            answer = json.loads(body)
            version = answer["index"]["version"]
            named = {version, response.headers["x-index-version"]}
            self.mixed += len(named) > 1 or any(hit["id"] not in self.ids[version] for hit in answer["hits"])
            self.rows.append((started, ended, version))


def main(
    index_root: Annotated[Path, typer.Option(help="Index root with two versions.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder whose queries are asked.")],
    version: Annotated[list[str] | None, typer.Option(help="The two versions; else the newest two.")] = None,
    swaps: Annotated[int, typer.Option(help="How many.", min=2)] = 20,
    rest_s: Annotated[float, typer.Option(help="Seconds at rest before.")] = 15.0,
    pause_s: Annotated[float, typer.Option(help="Seconds between two swaps.")] = 1.0,
    workers: Annotated[int, typer.Option(help="Processes that serve.")] = 1,
    cores: Annotated[str, typer.Option(help="Cores of the service.")] = "0,1",
    flags: Annotated[str, typer.Option(help="More flags of the service.")] = "--cache-entries 0",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Where to write the table.")
    ] = None,
) -> None:
    """Swaps during searches; exits with status 1 if a check fails."""
    names = version or IndexRoot(index_root).versions()[-2:]
    if len(names) != 2:
        raise typer.BadParameter(f"expected two versions in {index_root}, found {names}")
    texts = query_texts(data)
    with tempfile.TemporaryDirectory(dir=index_root.parent) as scratch:
        folder = Path(scratch)
        root = _linked(index_root, names, folder / "root")
        ids = {name: _ids(root / name) for name in names}
        options = ["--workers", str(workers), *flags.split()]
        spec = our_service(root, *options)
        with running(spec, folder, cores) as server, _asking(server, texts, ids) as clients:
            time.sleep(2.0)  # the first requests initialize lazy parts
            begun = time.perf_counter()
            time.sleep(rest_s)
            rest = (begun, time.perf_counter())
            spans, memory = [], []
            for number in range(swaps):
                spans.append(_swap(server, root, names[(number + 1) % 2]))
                memory.append(round(server.memory_mb(), 1))
                time.sleep(pause_s)
    report = _report(clients, rest, spans, memory)
    emit(report, _markdown(report), json_file, markdown_file)
    raise typer.Exit(int(not all(row["holds"] for row in report["verdicts"])))


def _linked(index_root: Path, names: list[str], target: Path) -> Path:
    for name in names:
        shutil.copytree(index_root / name, target / name, copy_function=os.link)
    _point(target, names[0])
    return target


def _point(root: Path, name: str) -> None:
    """As `publish`, without its checksums, which would load the measured machine."""
    (root / ".CURRENT").write_text(f"{name}\n", encoding="utf-8")
    (root / ".CURRENT").replace(root / "CURRENT")


def _ids(folder: Path) -> frozenset[str]:
    return frozenset(document.id for document in Index.open(folder)[STORED_FIELDS].scan())


@contextmanager
def _asking(server: Running, texts: list[str], ids: dict[str, frozenset[str]]) -> Iterator[list[Client]]:
    part = len(texts) // CLIENTS
    clients = [
        Client(server.port, texts[start : start + part], ids) for start in range(0, part * CLIENTS, part)
    ]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.enough.set()
        for client in clients:
            client.join(60)


def _swap(server: Running, root: Path, name: str) -> tuple[float, float]:
    """Changes CURRENT; returns the time span until every worker serves it and holds no other version."""
    started = time.perf_counter()
    _point(root, name)
    while time.perf_counter() - started < FOLLOW_WITHIN_S:
        time.sleep(0.1)
        status, body = call(server.port, Asked("/info"))
        info = json.loads(body) if status == 200 else {"index": {"version": ""}}
        if info["index"]["version"] == name and info["workers"]["following"] == info["workers"]["count"]:
            followed = time.perf_counter()
            while b"glow_index_versions_open 1.0" not in call(server.port, Asked("/metrics"))[1]:
                time.sleep(0.1)
            return started, followed
    raise RuntimeError(f"{name} is not served after {FOLLOW_WITHIN_S:g} s")


def _report(
    clients: list[Client], rest: tuple[float, float], spans: list[tuple[float, float]], memory: list[float]
) -> dict[str, Any]:
    times = np.array([row[:2] for client in clients for row in client.rows])
    took_ms = (times[:, 1] - times[:, 0]) * 1_000

    def between(start: float, end: float) -> np.ndarray:
        return (times[:, 1] >= start) & (times[:, 0] <= end)

    at_rest = percentiles(took_ms[between(*rest)])
    within = np.logical_or.reduce([between(*span) for span in spans])
    during = percentiles(took_ms[within])
    whole = percentiles(took_ms[between(spans[0][0], spans[-1][1])])
    failed = [text for client in clients for text in client.failed]
    mixed = sum(client.mixed for client in clients)
    slower = round((during["p99"] or 0.0) / (at_rest["p99"] or 1.0), 2)
    growth = round(memory[-1] / memory[0], 3)
    bar = f"memory after the last swap at most {MOST_GROWTH} times that after the first"
    verdicts = [
        verdict("no answer but 200", len(failed), not failed),
        verdict("each response names one version, and its hits exist in it", mixed, mixed == 0),
        verdict(
            f"p99 during swaps at most {MOST_SLOWER:g} times that at rest", slower, slower <= MOST_SLOWER
        ),
        verdict(bar, growth, growth <= MOST_GROWTH),
    ]
    return {
        "swaps": len(spans),
        "answers": len(times),
        "follow_s": percentiles(np.array([end - start for start, end in spans])),
        "at_rest_ms": at_rest,
        "during_ms": {**during, "answers": int(within.sum())},
        "whole_ms": whole,
        "memory_mb": memory,
        "failed": failed[:10],
        "verdicts": verdicts,
    }


def _markdown(report: dict[str, Any]) -> str:
    names = {"at_rest_ms": "at rest", "during_ms": "while swaps are under way", "whole_ms": "pauses included"}
    rows = [[name, *(report[key][part] for part in ("p50", "p99", "max"))] for key, name in names.items()]
    memory = report["memory_mb"]
    more = [
        ["seconds to follow", *(report["follow_s"][part] for part in ("p50", "p99", "max"))],
        ["resident MB after first, last; most", memory[0], memory[-1], max(memory)],
    ]
    return table([f"{report['swaps']} swaps, milliseconds", "p50", "p99", "max"], [*rows, *more])


if __name__ == "__main__":
    typer.run(main)
