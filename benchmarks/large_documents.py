"""Measures how features over the longest documents delay other requests: `python -m benchmarks.large_documents`.

Builds an index of 40 documents of almost 1,000,000 bytes and 60 small ones, and starts a service with two workers. It
measures a plain client (ten ordinary searches a second for the small ones) alone, and then with four clients that use
one feature without a pause. Prints a Markdown table. The clients run on the same machine.
"""

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer

from benchmarks.machine import machine
from benchmarks.report import table
from glow.artifact.model import default_model
from tests.attacks.harness import ROOT, Plain, serving

LONG, SHORT, CLIENTS = 40, 60, 4
LINE_BYTES = 990_000
QUERY = "bees of the hive find home"
Request = tuple[str, str, dict[str, Any] | None]


def build(folder: Path) -> Path:
    """Builds and publishes the index below a directory; returns its root."""
    text = "Bees of the hive number {} find home, and dance for the others in the dark. "
    source, root = folder / "corpus.jsonl", folder / "index"
    with source.open("w", encoding="utf-8") as lines:
        for number in range(LONG):
            sentence = text.format(number)
            line = {
                "_id": f"long{number}",
                "title": f"Hive {number}",
                "lang": f"l{number % 5}",
                "year": number,
            }
            lines.write(json.dumps({**line, "text": sentence * (LINE_BYTES // len(sentence))}) + "\n")
        for number in range(SHORT):
            line = {"_id": f"short{number}", "title": "A directory", "lang": "en", "year": number}
            lines.write(json.dumps({**line, "text": f"How to remove a directory {number}."}) + "\n")
    command = [sys.executable, "-m", "glow", "build", "--input", str(source), "--index-root", str(root)]
    subprocess.run(command, check=True, capture_output=True)
    return root


def requests(text: str) -> dict[str, Request]:
    """Name of a feature -> method, path and body of a request that uses it."""
    page = {"query": QUERY, "top_k": 9, "fields": [], "timeout_ms": 30_000}
    like = {"like": {"id": "long1"}, "top_k": 9, "fields": [], "timeout_ms": 30_000}

    def search(**more: Any) -> Request:
        return "POST", "/search", {**page, **more}

    return {
        "a search, `fields: []`": search(),
        "the same, `top_k` 40": search(top_k=40),
        "`highlight`": search(highlight=True),
        "`highlight`, `top_k` 40, longest snippets": search(
            top_k=40, highlight={"fields": ["title", "text"], "fragments": 10, "fragment_chars": 2_000}
        ),
        "`explain`": search(explain=True),
        "`facets`": search(facets=[{"field": "lang"}, {"field": "year"}]),
        "`group_by`": search(group_by={"field": "lang"}),
        "`sort`": search(sort=[{"field": "year", "order": "desc"}]),
        "`boosts`": search(boosts=[{"filter": {"field": "lang", "eq": "l1"}, "factor": 2}]),
        "`like`": ("POST", "/search", like),
        "whole documents, `top_k` 8": search(fields=None),
        "whole documents, `top_k` 40 (cut)": search(fields=None, top_k=40),
        "a batch of 8 of these": (
            "POST",
            "/search/batch",
            {"searches": [{**page, "fields": None, "query": f"{QUERY} {number}"} for number in range(8)]},
        ),
        "`GET /documents/{id}`": ("GET", "/documents/long1", None),
        "`/v1/embeddings` of 60 KB": (
            "POST",
            "/v1/embeddings",
            {"input": [text], "model": "glow-mini:document"},
        ),
    }


def flood(url: str, request: Request, ended: threading.Event, statuses: list[int]) -> None:
    """One client that repeats a request with changing queries."""
    method, path, body = request
    with httpx.Client(timeout=60) as client:
        number = 0
        while not ended.is_set():
            number += 1
            sent = (
                body
                if body is None or "query" not in body
                else {**body, "query": f"{body['query']} {number}"}
            )
            status = client.request(method, f"{url}{path}", json=sent).status_code
            statuses.append(status)
            if status != 200:
                ended.wait(0.1)


def beside(url: str, request: Request, seconds: float) -> tuple[list[float], list[int]]:
    """A plain client's latencies in ms next to four clients that repeat a request, and the statuses that those get."""
    ended, statuses, plain = threading.Event(), list[int](), Plain(url, pace_s=0.1, body={"top_k": 5})
    threads = [threading.Thread(target=flood, args=(url, request, ended, statuses)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    plain.ask(seconds)
    ended.set()
    for thread in threads:
        thread.join()
    return plain.ms, statuses


def main(
    seconds: Annotated[float, typer.Option(min=1, help="Of each feature.")] = 5.0,
    tree: Annotated[Path, typer.Option(help="Checkout whose service is measured.")] = ROOT,
) -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        root = build(Path(folder))
        rows = []
        flags = ("--workers", "2", "--cache-entries", "0", "--document-model", str(default_model()))
        with serving(root, *flags, tree=tree) as service:
            Plain(service.url).ask(1.0)
            for name, request in requests("Bees find home. " * 3_500).items():
                quiet = Plain(service.url, pace_s=0.1, body={"top_k": 5})
                quiet.ask(seconds / 2)
                ms, statuses = beside(service.url, request, seconds)
                alone, found = np.percentile(quiet.ms, [50, 99]), np.percentile(ms, [50, 99])
                counts = ", ".join(f"{statuses.count(each)} x {each}" for each in sorted(set(statuses)))
                rows.append((name, *map(float, (*alone, *found)), float(found[0] / alone[0]), counts))
                print(rows[-1], file=sys.stderr, flush=True)  # noqa: T201 - a program
    head = (
        "feature",
        "quiet p50, ms",
        "p99",
        "beside p50, ms",
        "p99",
        "ratio of p50",
        "attackers' responses",
    )
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    sys.stdout.write(f"{about}\n\n{table(head, rows)}\n")


if __name__ == "__main__":
    typer.run(main)
