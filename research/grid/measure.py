"""Measures a run of the grid by exact retrieval with torch towers and the term statistics of an index."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glow.evaluation import evaluate
from glow.nn import TwoTowers
from glow.records import Hit, Qrel
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermCounter, TermStats, TermTable, field_words, select_terms
from glow.training import Collection, read_collection, vectors

__all__ = ["MEASURES", "DevTask", "measure"]

MEASURES = (
    "RR@10", "RR@20", "nDCG@1", "nDCG@3", "nDCG@10", "NCG@10", "NCG@20", "NCG@50", "P@20", "ERR@20",
)  # fmt: skip
"""Measures of GLOW section 4.2."""
DEPTH = 50


@dataclass(frozen=True, slots=True, eq=False)
class DevTask:
    """One dev split and the documents to search.

    Attributes:
        name: name of the data directory.
        collection: all documents, and the split's queries.
        documents: numbers of the documents to search.
    """

    name: str
    collection: Collection
    documents: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path, schema: FieldSchema, others: int, queries: int = 0) -> "DevTask":
        """Reads the split `dev`.

        Args:
            folder: a data directory.
            schema: names the text fields.
            others: most non-relevant documents, drawn by seed 0; 0: all.
            queries: most queries, drawn by seed 0; 0: all.
        """
        collection = read_collection(folder, "dev", schema)
        if 0 < queries < len(collection.queries):
            drawn = np.random.default_rng(0).choice(len(collection.queries), queries, replace=False)
            kept: dict[str, Any] = {
                name: [getattr(collection, name)[number] for number in sorted(drawn)]
                for name in ("queries", "query_ids", "relevant")
            }
            collection = replace(collection, **kept)
        needed = {number for found in collection.relevant for number in found}
        rest = np.setdiff1d(np.arange(len(collection.documents)), np.array(sorted(needed)))
        if 0 < others < len(rest):
            rest = np.random.default_rng(0).choice(rest, others, replace=False)
        return cls(collection.name, collection, tuple(sorted(needed | set(rest.tolist()))))


def measure(
    towers: TwoTowers, trained: Preprocessor, task: DevTask, stats: TermStats, precision: str, device: str
) -> dict[str, float]:
    """Means of `MEASURES` over the task's queries.

    Args:
        towers: the towers to measure.
        trained: the run's preprocessor, with the term statistics of its training data.
        task: queries and documents.
        stats: source of idf.
        precision, device: as `glow.training.encode.vectors`.
    """
    terms = select_terms(stats, _terms(task, trained), trained.terms)
    preprocessor = Preprocessor(trained.pieces, trained.schema, trained.weighting, terms)
    pad_id = trained.pieces.pad_id
    texts = task.collection
    documents = [preprocessor.document(texts.documents[number]) for number in task.documents]
    found = vectors(towers.document, documents, pad_id, precision, device)
    queries = [preprocessor.query(text) for text in texts.queries]
    scores = vectors(towers.query, queries, pad_id, precision, device) @ found.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    run = {
        identifier: [Hit(str(task.documents[column]), float(scores[row, column])) for column in best[row]]
        for row, identifier in enumerate(texts.query_ids)
    }
    qrels = [
        Qrel(identifier, str(number), 1)
        for identifier, relevant in zip(texts.query_ids, texts.relevant, strict=True)
        for number in sorted(relevant)
    ]
    return {name: round(mean, 5) for name, mean in evaluate(run, qrels, MEASURES, 1).means.items()}


def _terms(task: DevTask, trained: Preprocessor) -> TermTable:
    counter = TermCounter()
    for number in task.documents:
        counter.add(field_words(task.collection.documents[number], trained.schema, trained.pieces))
    return counter.table()
