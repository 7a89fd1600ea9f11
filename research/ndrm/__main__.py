"""NDRM1 to NDRM3 over a data directory: `python -m research ndrm tables --data DIR --json FILE`, `python -m research ndrm cost --json FILE`."""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import ir_measures
import numpy as np
import torch
import typer
from ir_measures import RR, Qrel, R, ScoredDoc, nDCG
from numpy.typing import NDArray

from benchmarks.machine import machine
from glow.nn import minilm_folder
from glow.schema import FieldSchema
from glow.text import WordPieces
from glow.training.data import Collection, read_collection
from research.folders import given_folder, names_among
from research.ndrm.cost import measure_cost
from research.ndrm.index import search_impacts, write_impacts
from research.ndrm.model import Ndrm, NdrmConfig
from research.ndrm.pages import join_pages
from research.ndrm.search import bm25, rank, rerank, term_scores, tf_idf
from research.ndrm.train import Options, train
from research.ndrm.words import TermCollection, first_vectors, skip_gram_vectors

app = typer.Typer(add_completion=False)
MEASURES = [RR @ 10, nDCG @ 10, R @ 100]
VARIANTS: Mapping[str, dict[str, Any]] = {
    "NDRM1": {"kind": "latent"},
    "NDRM2": {"kind": "explicit"},
    "NDRM3": {"kind": "both"},
    "NDRM1 whole": {"kind": "latent", "contextual_queries": True},
}
Rankings = Sequence[tuple[Any, Any]]
Each = dict[str, dict[str, float]]
"""Measure -> query -> value."""


@app.command()
def tables(
    data: Annotated[Path, given_folder("In BEIR's layout, with a split `train`.")],
    json_file: Annotated[Path, typer.Option("--json")],
    split: Annotated[str, typer.Option()] = "dev",
    steps: Annotated[int, typer.Option()] = 1000,
    seeds: Annotated[int, typer.Option()] = 1,
    variants: Annotated[str, names_among(list(VARIANTS), "By commas.")] = ",".join(VARIANTS),
    clicked: Annotated[bool, typer.Option()] = False,
    vectors: Annotated[str, typer.Option()] = "pieces",
    queries: Annotated[int, typer.Option()] = 600,
    batch_size: Annotated[int, typer.Option()] = 32,
    document_terms: Annotated[int, typer.Option()] = 4000,
    budgets: Annotated[
        str,
        typer.Option(help="By commas: most terms of a document in an index of the scores; empty: no index."),
    ] = "",
    threads: Annotated[int, typer.Option()] = 2,
) -> None:
    """Trains each variant on the split `train` and measures it on another; appends each result to the file.

    `less` has the mean difference to BM25 of each query's measure, and its 95 % interval.
    """
    torch.set_num_threads(threads)
    schema, pieces = FieldSchema.preset("glow-default"), WordPieces(minilm_folder() / "vocab.txt")
    learned = TermCollection(
        read_collection(data, "train", schema), pieces, clicked=clicked, longest=document_terms
    )
    asked = _some(read_collection(data, split, schema), queries)
    judged = TermCollection(
        asked, pieces, clicked=clicked, vocabulary=learned.vocabulary, longest=document_terms
    )
    first = first_vectors(learned.vocabulary, pieces) if vectors == "pieces" else skip_gram_vectors(learned)
    made: dict[str, Any] = {
        "queries": len(asked.queries),
        "machine": machine(), "data": data.name, "split": split, "clicked": clicked, "vectors": vectors, "steps": steps,
        "rows": [],
    }  # fmt: skip
    hundred = []
    for terms in (learned, judged):
        wanted = np.unique(np.concatenate(terms.queries))
        hundred.append([rows for rows, _ in rank(terms, wanted, bm25(terms, wanted))])
    wanted = np.unique(np.concatenate(judged.queries))
    base = _each(judged, rank(judged, wanted, bm25(judged, wanted)))
    made["rows"] = [
        {"model": "BM25", "full": _told(base)},
        {"model": "TF-IDF", "full": _told(_each(judged, rank(judged, wanted, tf_idf(judged, wanted))), base)},
    ]
    study = _Study(learned, judged, hundred, first, base, [int(each) for each in budgets.split(",") if each])
    for seed in range(seeds):
        for name in variants.split(","):
            made["rows"].append(_one(name, Options(steps, batch_size, seed=seed), study))
            json_file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            sys.stderr.write(json.dumps(made["rows"][-1]) + "\n")


class _Study(NamedTuple):
    """What every variant is trained and measured with."""

    learned: TermCollection
    judged: TermCollection
    hundred: list[list[Any]]
    first: torch.Tensor
    base: Each
    budgets: list[int]


def _one(name: str, options: Options, study: _Study) -> dict[str, Any]:
    torch.manual_seed(options.seed)
    learned, judged, base = study.learned, study.judged, study.base
    sizes = {"words": len(learned.vocabulary), "embedding": study.first.shape[1]}
    model = Ndrm(NdrmConfig.model_validate(VARIANTS[name] | sizes))
    if model.config.kind != "explicit":
        with torch.no_grad():
            model.words.weight.copy_(study.first)
    start = time.monotonic()
    losses = train(model, learned, study.hundred[0], options)
    row: dict[str, Any] = {
        "model": name,
        "seed": options.seed,
        "loss": round(float(np.mean(losses[-100:])), 4),
    }
    row["train_seconds"] = round(time.monotonic() - start, 1)
    start = time.monotonic()
    if model.config.contextual_queries:
        found = rerank(model, judged, study.hundred[1])
        nothing = (np.empty(0, np.int64), np.empty(0, np.float32))
        row["rerank"] = _told(
            _each(judged, [found.get(query, nothing) for query in range(len(judged.queries))]), base
        )
        return row | {"search_seconds": round(time.monotonic() - start, 1)}
    indexed = bool(study.budgets)
    wanted = np.arange(len(judged.vocabulary)) if indexed else np.unique(np.concatenate(judged.queries))
    scores = term_scores(model, judged, wanted)
    full = _each(judged, rank(judged, wanted, scores))
    row["full"] = _told(full, base)
    row["rerank"] = _told(_each(judged, rank(judged, wanted, scores, among=study.hundred[1])), base)
    row["search_seconds"] = round(time.monotonic() - start, 1)
    if indexed:  # without the unknown term
        row["index"] = [_indexed(study, wanted[1:], scores[1:], budget, full) for budget in study.budgets]
    return row


def _indexed(
    study: _Study, every: NDArray[np.int64], scores: NDArray[np.float32], budget: int, full: Each
) -> dict[str, Any]:
    """An index of every vocabulary term's scores: its measures, with differences from exact scores, size and time."""
    start, judged = time.monotonic(), study.judged
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        postings = write_impacts(index, judged, every, scores, budget)
        written = round(time.monotonic() - start, 1)
        size = sum(path.stat().st_size for path in index.rglob("*"))
        found = _told(_each(judged, search_impacts(index, judged)), full)
    return {"budget": budget, "postings": postings, "bytes": size, "write_seconds": written, **found}


def _some(collection: Collection, count: int) -> Collection:
    """The same documents with a sample of the queries, drawn by seed 0."""
    if count >= len(collection.queries):
        return collection
    kept = sorted(np.random.default_rng(0).choice(len(collection.queries), count, replace=False).tolist())
    return replace(
        collection,
        queries=[collection.queries[place] for place in kept],
        query_ids=[collection.query_ids[place] for place in kept],
        relevant=[collection.relevant[place] for place in kept],
        negatives=None,
    )


def _each(terms: TermCollection, ranked: Rankings) -> Each:
    """Each measure of each query, by name."""
    collection = terms.collection
    qrels = [
        Qrel(collection.query_ids[query], collection.documents[row].id, 1)
        for query, rows in enumerate(collection.relevant)
        for row in rows
    ]
    run = [
        ScoredDoc(collection.query_ids[query], collection.documents[row].id, -float(place))
        for query, (rows, _) in enumerate(ranked)
        for place, row in enumerate(rows.tolist())
    ]
    found: Each = {str(name): dict.fromkeys(collection.query_ids, 0.0) for name in MEASURES}
    for metric in ir_measures.iter_calc(MEASURES, qrels, run):
        found[str(metric.measure)][metric.query_id] = metric.value
    return found


def _told(each: Each, base: Each | None = None) -> dict[str, Any]:
    """Means, and with `base` the mean differences to it with their 95 % intervals over queries."""
    told: dict[str, Any] = {
        name: round(float(np.mean(list(values.values()))), 4) for name, values in each.items()
    }
    if base is not None:
        told["less"] = {}
        for name, values in each.items():
            less = np.array([value - base[name][query] for query, value in values.items()])
            half = 1.96 * float(less.std(ddof=1)) / len(less) ** 0.5
            told["less"][name] = [round(float(less.mean()) + side, 4) for side in (0.0, -half, half)]
    return told


@app.command("pages")
def pages(
    data: Annotated[Path, given_folder("In BEIR's layout; documents have a `url`.")],
    out: Annotated[Path, typer.Option(help="Data directory to write.")],
    least: Annotated[int, typer.Option(help="Fewest words of a page.")] = 0,
    moved: Annotated[int, typer.Option(help="Queries that move from `train` to `dev`.")] = 0,
) -> None:
    """Joins the documents of one URL to one page, for documents longer than a window."""
    words = np.array(join_pages(data, out, least, moved))
    long, longer = (int((words >= bound).sum()) for bound in (300, 1000))
    sys.stderr.write(f"{len(words):,} pages, {long:,} of 300 words or more, {longer:,} of 1,000 or more\n")


@app.command()
def cost(json_file: Annotated[Path, typer.Option("--json")]) -> None:
    """Measures time and memory of the document encoder by document length."""
    made = {"machine": machine(), "rows": measure_cost()}
    json_file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
