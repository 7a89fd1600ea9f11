"""Gathers the features of both retrievers' candidates from an index.

m   candidates of a query
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.evaluation import find_tasks
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search import DEFAULT_CANDIDATES, EncodedQuery, analyze_query, gather_hybrid
from glow.text import is_lexical
from research.candidates import Candidates, gather, head_of, open_candidates, open_index

__all__ = ["gather_columns", "open_columns"]


def gather_columns(name: str, data: Path, index_root: Path, work: Path, split: str) -> int:
    """Searches with both retrievers, writes the candidates to `work`, and returns the number of queries.

    Args:
        name: name of the file.
        data: data directory.
        index_root: its index by the default model, kind `flat`.
        work: directory to write to.
        split: split of the queries.
    """
    index, task = open_index(index_root), find_tasks(data, [split])[0]
    documents = index[STORED_FIELDS].scan()
    titles = [_terms(index, " ".join(each.fields.get("title", ()))) for each in documents]
    gather(work / f"{name}.{split}.npz", index, task, lambda at: _query(index, task.queries[at].text, titles))
    return len(task.queries)


def open_columns(name: str, work: Path, split: str = "dev") -> Candidates:
    """Opens a file of `gather_columns`; `more` has `late` and `titled`, the fraction of the query's idf in the title."""
    return open_candidates(name, work / f"{name}.{split}.npz")


def _query(index: Index, text: str, titles: list[frozenset[str]]) -> dict[str, NDArray[Any]]:
    reading = analyze_query(index, text)
    query = EncodedQuery.of(reading, index.encoder.read_batch([reading.tokens])[0])
    dense, gathered = gather_hybrid(index, query, DEFAULT_CANDIDATES)
    rows = np.union1d(dense.rows, gathered.lexical[1]).astype(np.int64)
    late = None if gathered.score_late is None else gathered.score_late(rows, lambda: False)
    if gathered.score_dense is None or gathered.score_covered is None or late is None:
        raise MismatchError(
            "build the index by the default model, with words, tokens and whole vectors (--index flat)"
        )
    words = Counter(word for word in index.preprocessor.pieces.words(reading.text) if is_lexical(word))
    weights = {word: count * index.preprocessor.weigher.idf(word) for word, count in words.items()}
    total, titled = sum(weights.values()) or 1.0, np.zeros(len(rows))
    for word, weight in weights.items():
        term = index[POSTINGS].analyzer.term(word)
        titled += weight / total * np.array([term in titles[row] for row in rows.tolist()])
    return {
        "rows": rows,
        "cosine": gathered.score_dense(rows),
        "late": late,
        "impacts": gathered.score_lexical(rows),
        "covered": gathered.score_covered(rows),
        "titled": titled.astype(np.float32),
        "head": head_of(dense.scores),
    }


def _terms(index: Index, text: str) -> frozenset[str]:
    analyzer = index[POSTINGS].analyzer
    return frozenset(analyzer.term(word) for word in index.preprocessor.pieces.words(text))
