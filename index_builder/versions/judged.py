"""Judged queries for tuning: analyzed as a service does, with relevant documents as rows of the index."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.errors import InputError
from glow.evaluation import Task, dcg, grades_by_query
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.search import EncodedQuery, analyze_query

__all__ = ["DEPTH", "JudgedQuery", "judged_queries"]

DEPTH = 10
"""Cutoff of nDCG."""
QUERIES_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class JudgedQuery:
    """One query.

    Attributes:
        asked: the query as its tower read it.
        grades: row -> grade above 0 of the relevant documents in the index.
        ideal: DCG@10 of the best ranking of all judged documents, above 0.
    """

    asked: EncodedQuery
    grades: Mapping[int, int]
    ideal: float

    def ndcg(self, rows: NDArray[np.int64]) -> float:
        """nDCG@10 of a ranking, in [0, 1]; grades are gains (Järvelin and Kekäläinen 2002)."""
        return dcg([self.grades.get(row, 0) for row in rows[:DEPTH].tolist()]) / self.ideal


def judged_queries(index: Index, task: Task) -> list[JudgedQuery]:
    """The queries that have a word and a relevant document.

    Args:
        index: its query tower encodes them.
        task: queries and relevance judgments.

    Raises:
        InputError: if there are fewer than two, or the index holds none of the judged documents.
    """
    grades = grades_by_query(task.qrels)
    wanted = sorted({document for judged in grades.values() for document in judged})
    places = ((document, index[STORED_FIELDS].find(document)) for document in wanted)
    rows = {document: row for document, row in places if row is not None}
    relevant = [query for query in task.queries if max(grades[query.id].values()) > 0]
    readings = [(query.id, analyze_query(index, query.text)) for query in relevant]
    asked = [(name, reading) for name, reading in readings if reading.tokens.words]
    if len(asked) < 2 or not rows:
        raise InputError(
            f"{task.data}/qrels/{task.split}.tsv has {len(asked)} queries with a word and a relevant document, and "
            f"{len(rows)} of its documents are in the index; expected two queries or more, judged on this index"
        )
    found = []
    for start in range(0, len(asked), QUERIES_AT_ONCE):
        block = asked[start : start + QUERIES_AT_ONCE]
        read = index.encoder.read([reading.tokens for _, reading in block])
        for (name, reading), encoded in zip(block, read, strict=True):
            judged = {document: grade for document, grade in grades[name].items() if grade > 0}
            ideal = dcg(sorted(judged.values(), reverse=True)[:DEPTH])
            here = {rows[document]: grade for document, grade in judged.items() if document in rows}
            found.append(JudgedQuery(EncodedQuery.of(reading, encoded), here, ideal))
    return found
