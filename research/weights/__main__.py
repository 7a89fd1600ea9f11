"""Measures a model with its BM25 weights, and with weights of 1 in queries, in documents, or in both.

python -m research weights --data $DATA/tldr [--data …] [--model FOLDER] [--queries 500]

Search is exact, over the vectors of the model's own graphs. Intervals are paired over queries (95 %, bootstrap).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, default_model
from glow.evaluation import Evaluation, compare_all, evaluate, find_tasks
from glow.records import Hit, Query
from glow.runtime import Encoder, Model
from glow.text import WeightedTokens
from glow.training.data import count_terms, read_collection
from research.folders import given_folder

MEASURES = ("nDCG@10", "RR@10")
BATCH_TOKENS = 512
app = typer.Typer(add_completion=False)
Vectors = NDArray[np.float32]
Change = Callable[[Sequence[WeightedTokens]], list[WeightedTokens]]


@app.command("weights")
def main(
    data: Annotated[list[Path], given_folder("BEIR folder; may be given several times.")],
    model: Annotated[Path | None, given_folder("Model; default: models/DEFAULT.")] = None,
    split: Annotated[str, typer.Option(help="Its judgments.")] = "dev",
    queries: Annotated[int, typer.Option(min=1, help="Judged queries to draw.")] = 500,
) -> None:
    """Prints a table of differences from the model as it is."""
    opened = Model.open(model or default_model())
    for folder in data:
        typer.echo(f"\n|{folder.name}|{'|'.join(MEASURES)}|\n|---|{'---|' * len(MEASURES)}")
        for row in _rows(opened, folder, split, queries):
            typer.echo(f"|{'|'.join(row)}|")


def _rows(model: Model, folder: Path, split: str, count: int) -> Iterator[list[str]]:
    collection = read_collection(folder, split, model.preprocessor.schema)
    terms = count_terms([collection], model.preprocessor.schema, model.preprocessor.pieces)
    preprocessor = model.with_terms(terms)
    task = find_tasks(folder, [split])[0]
    drawn = np.random.default_rng(0).permutation(len(task.queries))[:count]
    asked = [task.queries[place] for place in drawn.tolist()]
    ids = [document.id for document in collection.documents]
    sides = {
        QUERY_TOWER: [preprocessor.query(query.text) for query in asked],
        DOCUMENT_TOWER: [preprocessor.document(document) for document in collection.documents],
    }
    found: dict[tuple[str, Change], Vectors] = {}
    for graph, sequences in sides.items():
        tower = Encoder(model.folder / graph, preprocessor.pieces.pad_id, batch_tokens=BATCH_TOKENS)
        for change in (list, _ones) if graph == DOCUMENT_TOWER else (list, _ones, _shuffled):
            found[graph, change] = tower.encode(change(sequences))

    def measured(query: Change, document: Change) -> Evaluation:
        cosines = found[QUERY_TOWER, query] @ found[DOCUMENT_TOWER, document].T
        run = dict(_hits(asked, ids, cosines))
        return evaluate(run, [qrel for qrel in task.qrels if qrel.query_id in run], list(MEASURES))

    whole = measured(list, list)
    yield ["as it is", *(f"{whole.means[name]:.4f}" for name in MEASURES)]
    changes = {
        "all 1": measured(_ones, _ones),
        "queries 1": measured(_ones, list),
        "documents 1": measured(list, _ones),
        "shuffled in each query": measured(_shuffled, list),
    }
    for name, each in zip(changes, compare_all(whole, list(changes.values())), strict=True):
        cells = (each[measure] for measure in MEASURES)
        yield [name, *(f"{one.difference:+.4f} ({one.low:+.4f} to {one.high:+.4f})" for one in cells)]


def _hits(asked: Sequence[Query], ids: Sequence[str], cosines: Vectors) -> Iterator[tuple[str, list[Hit]]]:
    for query, row in zip(asked, cosines, strict=True):
        best = np.argsort(-row, kind="stable")[:10].tolist()
        yield query.id, [Hit(ids[place], float(row[place])) for place in best]


def _ones(sequences: Sequence[WeightedTokens]) -> list[WeightedTokens]:
    return [replace(each, weights=np.ones_like(each.weights)) for each in sequences]


def _shuffled(sequences: Sequence[WeightedTokens]) -> list[WeightedTokens]:
    """The same weights at other words of the query; [CLS] and [SEP] keep theirs."""
    random = np.random.default_rng(0)
    moved = []
    for each in sequences:
        weights = each.weights.copy()
        weights[1:-1] = random.permutation(weights[1:-1])
        moved.append(replace(each, weights=weights))
    return moved


if __name__ == "__main__":
    app()
