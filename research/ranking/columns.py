"""All that a ranking could read of the candidates of both heads, for every judged query of a collection, as an index serves it.

m   candidates of all queries, one query's after another's      q   queries
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import IndexRoot
from glow.errors import MismatchError
from glow.evaluation import dcg, find_tasks, grades_by_query
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search import DEFAULT_CANDIDATES, EncodedQuery, gather_hybrid, read_query
from glow.text import is_lexical

__all__ = ["Collection", "gather", "open_collection"]

Floats = NDArray[np.float32]
SOME = 10
"""Dense hits, best first, whose cosines are kept of each query."""


@dataclass(frozen=True, eq=False)
class Collection:
    """What the heads found.

    Attributes:
        name: of the collection.
        starts: int64 [q + 1].
        rows, order, grades: int64 [m], ascending in a query; a row's place among equals; of the judgement.
        ideal: float64 [q], DCG@10 of the best ranking there could be.
        cosine, late, impacts, covered, titled: float32 [m]; `covered` is what `coverage_scorer` tells, `titled` the share of the query's
            idf that the title holds.
        head: float32 [q, 10], the highest cosines of all documents, 0 if there are fewer.
        unknown: int64 [q], lexical words that no document holds.
        scale: the largest impact of the index.
    """

    name: str
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    order: NDArray[np.int64]
    grades: NDArray[np.int64]
    ideal: NDArray[np.float64]
    cosine: Floats
    late: Floats
    impacts: Floats
    covered: Floats
    titled: Floats
    head: Floats
    unknown: NDArray[np.int64]
    scale: float

    def __len__(self) -> int:
        return len(self.ideal)

    def spread(self, values: NDArray[Any]) -> Floats:
        """A value of each query as one of each candidate."""
        return np.repeat(values, np.diff(self.starts)).astype(np.float32)

    @cached_property
    def queries(self) -> NDArray[np.int64]:
        """Whose each candidate is, int64 [m]."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))


def gather(name: str, data: Path, index_root: Path, work: Path, split: str) -> Collection:
    """Searches with both heads and writes what was found to `work`.

    Args:
        name: of the file.
        data: folder of the collection.
        index_root: built of it by the default model, kind `flat`.
        work: where to write.
        split: whose queries are searched.
    """
    found = IndexRoot(index_root)
    index = Index.open(found.folder(found.current()))
    task = find_tasks(data, [split])[0]
    documents = list(index[STORED_FIELDS].scan())
    ids = [each.id for each in documents]
    titles = [_terms(index, " ".join(each.fields.get("title", ()))) for each in documents]
    grades = grades_by_query(task.qrels)
    kept: list[dict[str, NDArray[Any]]] = []
    for query in task.queries:
        columns = _query(index, query.text, titles)
        judged = grades[query.id]
        columns["grades"] = np.array([judged.get(ids[row], 0) for row in columns["rows"].tolist()])
        kept.append(columns)
    per_query = ("head", "unknown")
    counts = [len(each["rows"]) for each in kept]
    arrays: dict[str, Any] = {
        key: np.concatenate([each[key] for each in kept]) for key in kept[0] if key not in per_query
    }
    arrays |= {key: np.stack([each[key] for each in kept]) for key in per_query}
    order = np.arange(len(ids)) if index.order is None else np.asarray(index.order, np.int64)
    np.savez(
        work / f"{name}.{split}.npz",
        **arrays,
        order=order[arrays["rows"]],
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        ideal=np.array([dcg(sorted(grades[query.id].values(), reverse=True)[:10]) for query in task.queries]),
        scale=index[POSTINGS].largest,
    )
    return open_collection(name, work, split)


def open_collection(name: str, work: Path, split: str) -> Collection:
    """Opens what `gather` wrote."""
    with np.load(work / f"{name}.{split}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    return Collection(name=name, scale=float(arrays.pop("scale")), **arrays)


def _query(index: Index, text: str, titles: list[frozenset[str]]) -> dict[str, NDArray[Any]]:
    reading = read_query(index, text)
    encoded = index.encoder.read_batch([reading.tokens])[0]
    query = EncodedQuery.of(reading, encoded)
    dense, gathered = gather_hybrid(index, query, DEFAULT_CANDIDATES)
    rows = np.union1d(dense.rows, gathered.lexical[1]).astype(np.int64)
    late = None if gathered.score_late is None else gathered.score_late(rows, lambda: False)
    if gathered.score_dense is None or gathered.score_covered is None or late is None:
        raise MismatchError(
            "build the index by the default model, with words, tokens and whole vectors (--index flat)"
        )
    head = np.zeros(SOME, np.float32)
    head[: len(dense.scores[:SOME])] = dense.scores[:SOME]
    impacts, words = index[POSTINGS], Counter(_lexical(index, reading.text))
    weights = {word: count * index.preprocessor.weigher.idf(word) for word, count in words.items()}
    total, titled = sum(weights.values()) or 1.0, np.zeros(len(rows))
    for word, weight in weights.items():
        titled += (
            weight / total * np.array([impacts.analyzer.term(word) in titles[row] for row in rows.tolist()])
        )
    return {
        "rows": rows,
        "cosine": gathered.score_dense(rows),
        "late": late,
        "impacts": gathered.score_lexical(rows),
        "covered": gathered.score_covered(rows),
        "titled": titled.astype(np.float32),
        "head": head,
        "unknown": np.array(sum(not impacts.holds(word) for word in words)),
    }


def _lexical(index: Index, text: str) -> list[str]:
    return [word for word in index.preprocessor.pieces.words(text) if is_lexical(word)]


def _terms(index: Index, text: str) -> frozenset[str]:
    analyzer = index[POSTINGS].analyzer
    return frozenset(analyzer.term(word) for word in index.preprocessor.pieces.words(text))
