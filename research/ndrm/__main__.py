"""NDRM1 to NDRM3 over a data directory: `python -m research ndrm tables --data DIR --json FILE`, `python -m research ndrm cost --json FILE`."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import ir_measures
import numpy as np
import torch
import typer
from ir_measures import RR, Qrel, R, ScoredDoc, nDCG

from benchmarks.machine import machine
from glow.nn import minilm_folder
from glow.schema import FieldSchema
from glow.text import WordPieces
from glow.training.data import Collection, read_collection
from research.folders import given_folder, names_among
from research.ndrm.cost import measure_cost
from research.ndrm.model import Ndrm, NdrmConfig
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
Rankings = Mapping[int, tuple[Any, Any]]


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
    threads: Annotated[int, typer.Option()] = 2,
) -> None:
    """Trains each variant on the split `train` and measures it on another; appends each result to the file."""
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
    for name, scores in (("BM25", bm25(judged, wanted)), ("TF-IDF", tf_idf(judged, wanted))):
        made["rows"].append(
            {"model": name, "full": _measures(judged, dict(enumerate(rank(judged, wanted, scores))))}
        )
    for name in variants.split(","):
        for seed in range(seeds):
            made["rows"].append(
                _one(name, Options(steps, batch_size, seed=seed), learned, judged, hundred, first, wanted)
            )
            json_file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            sys.stderr.write(json.dumps(made["rows"][-1]) + "\n")


def _one(
    name: str,
    options: Options,
    learned: TermCollection,
    judged: TermCollection,
    hundred: list[list[Any]],
    first: torch.Tensor,
    wanted: Any,
) -> dict[str, Any]:
    torch.manual_seed(options.seed)
    sizes = {"words": len(learned.vocabulary), "embedding": first.shape[1]}
    model = Ndrm(NdrmConfig.model_validate(VARIANTS[name] | sizes))
    if model.config.kind != "explicit":
        with torch.no_grad():
            model.words.weight.copy_(first)
    start = time.monotonic()
    losses = train(model, learned, hundred[0], options)
    row: dict[str, Any] = {
        "model": name,
        "seed": options.seed,
        "loss": round(float(np.mean(losses[-100:])), 4),
    }
    row["train_seconds"] = round(time.monotonic() - start, 1)
    start = time.monotonic()
    if model.config.contextual_queries:
        row["rerank"] = _measures(judged, rerank(model, judged, hundred[1]))
    else:
        scores = term_scores(model, judged, wanted)
        row["full"] = _measures(judged, dict(enumerate(rank(judged, wanted, scores))))
        row["rerank"] = _measures(judged, dict(enumerate(rank(judged, wanted, scores, among=hundred[1]))))
    row["search_seconds"] = round(time.monotonic() - start, 1)
    return row


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


def _measures(terms: TermCollection, ranked: Rankings) -> dict[str, float]:
    collection = terms.collection
    qrels = [
        Qrel(collection.query_ids[query], collection.documents[row].id, 1)
        for query, rows in enumerate(collection.relevant)
        for row in rows
    ]
    run = [
        ScoredDoc(collection.query_ids[query], collection.documents[row].id, -float(place))
        for query, (rows, _) in ranked.items()
        for place, row in enumerate(rows.tolist())
    ]
    return {
        str(name): round(value, 4) for name, value in ir_measures.calc_aggregate(MEASURES, qrels, run).items()
    }


@app.command()
def cost(json_file: Annotated[Path, typer.Option("--json")]) -> None:
    """Measures time and memory of the document encoder by document length."""
    made = {"machine": machine(), "rows": measure_cost()}
    json_file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
