"""The CPU time of each stage of a search, beside a bare call of the library that does its work.

python -m benchmarks.serving.stages --index-root INDEX_ROOT --data $DATA/tldr

One thread of this process runs whole searches, from text to the bytes of the result. Functions are timed by the thread's CPU clock; a
stage does not contain the stages that it calls.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import machine
from glow.artifact import IndexRoot
from glow.collection import read_queries
from glow.index import Index, set_numpy_threads
from glow.index.postings import ImpactIndex
from glow.index.stored_fields import DocumentStore
from glow.index.vectors import VECTORS, DenseIndex, SearchParams, set_threads
from glow.runtime import Encoder
from glow.search import hybrid, retrievers
from glow.text import Highlighting, pad
from glow_service.fragment import ResultFragment
from glow_service.search import hits, render
from glow_service.search.plan import HighlightCall, SearchPlan
from glow_service.search.run import SearchSession

WARM = 100
PLACES: tuple[tuple[str, Any, str], ...] = (
    ("preprocess", SearchSession, "preprocess"),
    ("encode", Encoder, "run"),
    ("dense search", DenseIndex, "search"),
    ("dense search", DenseIndex, "score"),
    ("words", ImpactIndex, "search"),
    ("words", ImpactIndex, "score"),
    ("words", ImpactIndex, "by_word"),
    ("fuse", retrievers, "fuse_rankings"),
    ("fuse", hybrid, "best"),
    ("fetch", DocumentStore, "rows"),
    ("highlight", hits.Snippets, "of"),
    ("render", render.HitMaker, "hit"),
    ("write", ResultFragment, "of"),
    ("the rest", SearchSession, "run"),
)
"""Stage, and a function of it, by owner and name."""


class Stages:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.own: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def wrap(self, stage: str, owner: Any, name: str) -> None:
        """Times a function from now on."""
        call: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            started = time.thread_time()
            try:
                return call(*args, **options)
            finally:
                took = time.thread_time() - started
                self.own[stage] += took - self._inner.pop()
                if self._inner:
                    self._inner[-1] += took

        setattr(owner, name, staticmethod(timed) if owner is ResultFragment else timed)


def main(
    index_root: Annotated[Path, typer.Option(help="Index root.")],
    data: Annotated[Path, typer.Option(help="BEIR folder whose queries are asked.")],
    queries: Annotated[int, typer.Option(min=10, help="How many different ones.")] = 600,
) -> None:
    """Prints a Markdown table."""
    set_threads(1)
    set_numpy_threads(1)
    root = IndexRoot(index_root)
    index = Index.open(root.folder(root.current()))
    texts = list(dict.fromkeys(query.text for query in read_queries(data / "queries.jsonl")))
    chosen = [texts[place] for place in np.random.default_rng(0).permutation(len(texts))[: queries + WARM]]
    plain = SearchPlan("", 10, 0, 100, SearchParams())
    marked = HighlightCall(index.preprocessor.schema.names, Highlighting())
    calls = {
        "dense": plain,
        "hybrid": replace(plain, retriever="hybrid"),
        "hybrid, highlights": replace(plain, retriever="hybrid", highlight=marked),
    }
    bare = _bare(index, chosen)
    stages = Stages()
    for place in PLACES:
        stages.wrap(*place)
    columns: dict[str, dict[str, float]] = {}
    for name, call in calls.items():
        for number, text in enumerate(chosen):
            if number == WARM:
                stages.own.clear()
            session = SearchSession(index, replace(call, text=text))
            found = session.run()
            ResultFragment.of(found.found)
        columns[name] = {stage: 1e3 * each / queries for stage, each in stages.own.items()}
    typer.echo(", ".join(f"{name} {value}" for name, value in machine().items()))
    typer.echo(f"\n| CPU ms a query | {' | '.join(columns)} | bare call |\n|---|{'---|' * len(columns)}---|")
    for stage in dict.fromkeys(place[0] for place in PLACES):
        cells = [f"{column[stage]:.3f}" if stage in column else "" for column in columns.values()]
        typer.echo(f"| {stage} | {' | '.join(cells)} | {bare.get(stage, '')} |")
    typer.echo(f"| sum | {' | '.join(f'{sum(column.values()):.2f}' for column in columns.values())} | |")


def _bare(index: Index, texts: list[str]) -> dict[str, str]:
    """CPU milliseconds of the library's own call alone, in a loop, by stage."""
    encoder, tokens = index.encoder, [index.preprocessor.query(text) for text in texts]
    session, outputs = encoder._session, list(encoder.outputs)
    inputs = []
    for each in tokens:
        batch = pad([each], 0)
        inputs.append(
            {"ids": batch.ids, "mask": batch.mask, "field_ids": batch.field_ids, "weights": batch.weights}
        )
    vectors = encoder.encode(tokens)
    dense = index[VECTORS]
    assert isinstance(dense, DenseIndex)
    faiss_index = dense._index
    return {
        "encode": _time(lambda place: session.run(outputs, inputs[place]), len(texts)),
        "dense search": _time(lambda place: faiss_index.search(vectors[place : place + 1], 101), len(texts)),
    }


def _time(call: Callable[[int], object], count: int) -> str:
    for place in range(WARM):
        call(place)
    started = time.thread_time()
    for place in range(count):
        call(place)
    return f"{1e3 * (time.thread_time() - started) / count:.3f}"


if __name__ == "__main__":
    typer.run(main)
