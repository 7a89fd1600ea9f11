"""Compares searches of one collection in several index roots, such as one in files and one in Milvus.

OMP_NUM_THREADS=1 python -m benchmarks.stores --index-root files --index-root milvus --data $DATA/tldr

Roots and kinds of search alternate query by query in one thread of this process, from text to documents. Times are wall times. Memory is
that of a new process with the open index after 100 hybrid searches; Milvus Lite runs inside that process.
"""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.machine import machine
from glow.artifact import IndexRoot
from glow.collection import read_queries
from glow.index import Index
from glow.index.vectors import SearchParams, set_threads
from glow.search import Retriever
from glow_service.search.calls import SearchCall
from glow_service.search.session import SearchSession

KINDS: tuple[Retriever, ...] = ("dense", "lexical", "hybrid")
WARM = 20
PLAIN = SearchCall("", 10, 0, 100, SearchParams())
MEMORY = "import sys; from benchmarks.stores import memory; memory(sys.argv[1], sys.argv[2:])"


def main(
    index_root: Annotated[list[Path], typer.Option(help="Index root; several are compared.")],
    data: Annotated[Path, typer.Option(help="BEIR folder whose queries are asked.")],
    queries: Annotated[int, typer.Option(min=10, help="How many different ones.")] = 300,
) -> None:
    """Prints a Markdown table."""
    set_threads(1)
    texts = list(dict.fromkeys(query.text for query in read_queries(data / "queries.jsonl")))
    chosen = [texts[place] for place in np.random.default_rng(0).permutation(len(texts))[: queries + WARM]]
    for root in index_root:
        given = [sys.executable, "-c", MEMORY, str(root), *chosen[:100]]
        typer.echo(
            f"{root.name}: {subprocess.run(given, capture_output=True, text=True, check=True).stdout.strip()}"
        )
    indexes = {root.name: _opened(root) for root in index_root}
    times: dict[tuple[str, Retriever], list[float]] = {(name, kind): [] for name in indexes for kind in KINDS}
    differing = 0
    for place, text in enumerate(chosen):
        hits = {}
        for name, kind in np.random.default_rng(place).permutation(list(times)):
            started = time.perf_counter()
            hits[name, kind] = _ids(indexes[name], text, kind)
            times[name, kind].append(1_000 * (time.perf_counter() - started))
        differing += any(len({tuple(hits[name, kind]) for name in indexes}) > 1 for kind in KINDS)
    typer.echo(f"{machine()}\n\n|search|" + "|".join(f"{name}: p50, p99 ms" for name in indexes) + "|")
    typer.echo("|---|" + "---|" * len(indexes))
    for kind in KINDS:
        cells = (np.percentile(times[name, kind][WARM:], [50, 99]) for name in indexes)
        typer.echo(f"|{kind}|" + "|".join(f"{half:.2f}, {worst:.2f}" for half, worst in cells) + "|")
    typer.echo(f"\n{differing} of {len(chosen)} queries differ in a first ten.")


def memory(root: str, texts: list[str]) -> None:
    """Prints what this process takes after some searches."""
    started = time.perf_counter()
    index = _opened(Path(root))
    opened_s = time.perf_counter() - started
    for text in texts:
        _ids(index, text, "hybrid")
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    whole, own = (int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
    typer.echo(f"open in {opened_s:.2f} s, {whole:.0f} MB resident, {own:.0f} MB of it anonymous")


def _opened(root: Path) -> Index:
    found = IndexRoot(root)
    return Index.open(found.folder(found.current()))


def _ids(index: Index, text: str, kind: Retriever) -> list[str]:
    call = replace(PLAIN, text=text, retriever=kind)
    return [hit.id for hit in SearchSession(index, call).run().found.hits]


if __name__ == "__main__":
    typer.run(main)
