"""Measures a re-ranker: the first-stage ranking, the re-ranker's, and mixtures of both scores.

python -m benchmarks.reranking --checkpoint CKPT --data $DATA/tldr --run runs/tldr-dev.trec [--split dev] [--depth 50]

The run is a TREC file of first-stage retrieval over that split (`glow evaluate --run`). At most `--depth` of its
documents per query are re-ranked and measured.
"""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.report import emit_json
from glow.collection import read_qrels
from glow.index.token_embeddings import StateBits
from glow.training.data import read_collection
from glow.training.rerank import (
    Candidates,
    load_reranker,
    measure_reranking,
    read_candidates,
    score_candidates,
)
from glow.training.rerank.candidates import Texts

BITS: dict[int, StateBits | None] = {0: None, 16: 16, 8: 8, 4: 4}
MIXES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def main(
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint of a re-ranker.")],
    data: Annotated[Path, typer.Option(help="Data folder.")],
    run: Annotated[Path, typer.Option(help="TREC run of first-stage retrieval.")],
    split: Annotated[str, typer.Option(help="Split of its judgements.")] = "dev",
    rel: Annotated[int, typer.Option(help="Lowest grade that counts for RR.")] = 1,
    depth: Annotated[int, typer.Option(help="Candidates a query.")] = 50,
    queries: Annotated[int, typer.Option(help="How many, drawn by seed 0; 0: all.")] = 0,
    precision: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    bits: Annotated[int, typer.Option(help="Of a stored number: 16, 8 or 4; 0 leaves states whole.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 takes all cores.")] = 0,
) -> None:
    """Prints measures by mixture as JSON."""
    if threads:
        torch.set_num_threads(threads)
    found = load_reranker(checkpoint)
    collection = read_collection(data, split, found.preprocessor.schema)
    qrels = list(read_qrels(data / "qrels" / f"{split}.tsv"))
    candidates = read_candidates(run, collection, depth)
    if queries:
        chosen = set(np.random.default_rng(0).permutation(len(collection.queries))[:queries].tolist())
        candidates = _only(candidates, chosen)
        judged = {collection.query_ids[number] for number in chosen}
        qrels = [qrel for qrel in qrels if qrel.query_id in judged]
    start = time.monotonic()
    texts = Texts(collection, found.preprocessor)
    scores = score_candidates(
        found.model, texts, candidates, found.preprocessor.pieces.pad_id, precision, BITS[bits]
    )
    emit_json(
        {
            "data": data.resolve().name,
            "split": split,
            "depth": depth,
            "queries": queries or len(collection.queries),
            "seconds": round(time.monotonic() - start, 1),
            "measures": measure_reranking(scores, qrels, [None, *MIXES], rel=rel),
        }
    )


def _only(candidates: Candidates, chosen: set[int]) -> Candidates:
    """Keeps the queries that have candidates."""
    rows = [found if number in chosen else found[:0] for number, found in enumerate(candidates.rows)]
    scores = [found if number in chosen else found[:0] for number, found in enumerate(candidates.scores)]
    return Candidates(candidates.collection, rows, scores)


if __name__ == "__main__":
    typer.run(main)
