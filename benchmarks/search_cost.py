"""Compares the cost of each kind of search with a dense one, and shows that unused explanations cost nothing.

OMP_NUM_THREADS=1 python -m benchmarks.search_cost --index-root INDEX_ROOT --data $DATA/tldr

Kinds alternate query by query in one thread of this process, from text to documents, so other load affects them equally.
The ratio is that of the medians; its interval comes from a bootstrap over queries. "Without explain graphs" is the same
index without its explainer.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import machine
from glow.artifact import IndexRoot
from glow.collection import read_queries
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, SearchParams, set_threads
from glow.text.highlight import Highlighting
from glow_service.search.plan import HighlightCall, SearchPlan
from glow_service.search.run import SearchSession

SAMPLES = 2_000
WARM = 100


def main(
    index_root: Annotated[Path, typer.Option(help="Index root.")],
    data: Annotated[Path, typer.Option(help="BEIR folder whose queries are asked.")],
    queries: Annotated[int, typer.Option(min=10, help="How many different ones.")] = 2_000,
) -> None:
    """Prints a Markdown table."""
    set_threads(1)
    root = IndexRoot(index_root)
    index = Index.open(root.folder(root.current()))
    kinds = _kinds(index)
    texts = list(dict.fromkeys(query.text for query in read_queries(data / "queries.jsonl")))
    chosen = [texts[place] for place in np.random.default_rng(0).permutation(len(texts))[: queries + WARM]]
    times = {name: np.empty(len(chosen)) for name in kinds}
    for place, text in enumerate(chosen):
        # In random order, so that one kind does not always profit from caches that another filled.
        for name in np.random.default_rng(place).permutation(list(kinds)):
            started = time.thread_time()
            kinds[name](text)
            times[name][place] = time.thread_time() - started
    typer.echo(", ".join(f"{name} {value}" for name, value in machine().items()))
    typer.echo(
        f"\n{data.name}: {index[STORED_FIELDS].count:,} documents ({index[VECTORS].kind}), {queries:,} queries\n"
    )
    typer.echo("| search | CPU p50 ms | CPU p99 ms | / dense, 95 % |\n| --- | --- | --- | --- |")
    for name, measured in times.items():
        own = measured[WARM:]
        low, ratio, high = _ratio(own, times["dense"][WARM:])
        p50, p99 = np.quantile(own, [0.5, 0.99]) * 1e3
        typer.echo(f"| {name} | {p50:.2f} | {p99:.2f} | {ratio:.3f} ({low:.3f} to {high:.3f}) |")


def _kinds(index: Index) -> dict[str, Callable[[str], object]]:
    plain = SearchPlan("", 10, 0, 100, SearchParams())
    highlight = HighlightCall(("title", "text"), Highlighting())
    calls = {
        "dense": plain,
        "lexical": replace(plain, retriever="lexical"),
        "hybrid": replace(plain, retriever="hybrid"),
        "dense with highlights": replace(plain, highlight=highlight),
    }
    bare = replace(index, models=replace(index.models, explainer=None))

    def ask(over: Index, call: SearchPlan) -> Callable[[str], object]:
        return lambda text: SearchSession(over, replace(call, text=text)).run()

    asked = {name: ask(index, call) for name, call in calls.items()}
    return {**asked, "dense, without explain graphs": ask(bare, plain)}


def _ratio(own: NDArray[np.float64], base: NDArray[np.float64]) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(own), (SAMPLES, len(own)))
    ratios = np.median(own[drawn], axis=1) / np.median(base[drawn], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(np.median(own) / np.median(base)), float(high)


if __name__ == "__main__":
    typer.run(main)
