"""Candidates of both retrievers for every judged query of a dataset, their features, and measures of a ranking.

m   candidates of all queries, query by query                   q   queries
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import IndexRoot
from glow.evaluation import Task, dcg, grades_by_query
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search import HEAD, uncertainty

__all__ = ["DEPTH", "Candidates", "Measured", "gather", "head_of", "measure", "open_candidates", "open_index"]

Array = NDArray[Any]
Floats = NDArray[np.float32]
DEPTH = 10


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Relevant candidates (r of them), each with all candidates of its query.

    Attributes:
        places, queries: int64 [r], positions among all candidates, and their queries.
        peers: int64 [r, most candidates of a query], positions of candidates of the same query; others are arbitrary.
        is_mate: bool of the same shape, whether the entry is valid.
    """

    places: NDArray[np.int64]
    queries: NDArray[np.int64]
    peers: NDArray[np.int64]
    is_mate: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of both retrievers in one dataset.

    Attributes:
        name: name of the dataset.
        starts: int64 [q + 1].
        rows, order, grades: int64 [m], rows ascending within a query; a row's place in a tie; its grade.
        ideal: float64 [q], DCG@10 of the best possible ranking.
        cosine, impacts, covered: float32 [m].
        head: float32 [q, 10], the highest cosines of all documents.
        scale: the largest impact of the index.
        more: a study's further columns.
    """

    name: str
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    order: NDArray[np.int64]
    grades: NDArray[np.int64]
    ideal: NDArray[np.float64]
    cosine: Floats
    impacts: Floats
    covered: Floats
    head: Floats
    scale: float
    more: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.ideal)

    def spread(self, values: Array) -> Floats:
        """Repeats each query's value for its candidates."""
        return np.repeat(values, np.diff(self.starts)).astype(np.float32)

    @cached_property
    def openness(self) -> Floats:
        """Factor of the lexical score, float32 [m]: the uncertainty of the dense ranking."""
        return self.spread(np.array([uncertainty(head) for head in self.head]))

    @cached_property
    def queries(self) -> NDArray[np.int64]:
        """The query of each candidate, int64 [m]."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs from which measures are computed."""
        places = np.flatnonzero(self.grades > 0)
        queries = self.queries[places]
        mates = self.starts[queries][:, None] + np.arange(int(np.diff(self.starts).max()))
        is_mate = mates < self.starts[queries + 1][:, None]
        return Pairs(places, queries, np.where(is_mate, mates, 0), is_mate)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """RR@10 and nDCG@10 of each query, float64 [q]."""

    rr: NDArray[np.float64]
    ndcg: NDArray[np.float64]


def measure(candidates: Candidates, scores: NDArray[np.floating[Any]]) -> Measured:
    """Measures a ranking of the candidates; ties are broken by document, grades are gains.

    Only ranks of relevant documents are computed: the number of the query's candidates before them.
    """
    pairs, order = candidates.pairs, candidates.order
    every, own = scores[pairs.peers], scores[pairs.places][:, None]
    is_tied = (every == own) & (order[pairs.peers] < order[pairs.places][:, None])
    rank = 1 + (((every > own) | is_tied) & pairs.is_mate).sum(1)
    rr, gained = np.zeros(len(candidates)), np.zeros(len(candidates))
    first = rank <= DEPTH
    np.maximum.at(rr, pairs.queries[first], 1.0 / rank[first])
    np.add.at(gained, pairs.queries[first], candidates.grades[pairs.places][first] / np.log2(rank[first] + 1))
    return Measured(rr, gained / np.maximum(candidates.ideal, 1e-9))


def gather(path: Path, index: Index, task: Task, columns: Callable[[int], Mapping[str, Array]]) -> None:
    """Writes a file for `open_candidates`.

    Args:
        path: an npz file.
        index: an index of kind `flat` with a lexical part.
        task: the queries to search.
        columns: position of a query -> `rows`, columns of that length, and values of the query, of shape [1, …].
    """
    found = [columns(number) for number in range(len(task.queries))]
    arrays = {key: np.concatenate([each[key] for each in found]) for key in found[0]}
    counts = [len(each["rows"]) for each in found]
    ids = [document.id for document in index[STORED_FIELDS].scan()]
    order = np.arange(len(ids)) if index.order is None else np.asarray(index.order, np.int64)
    grades = grades_by_query(task.qrels)
    judged = [grades[query.id] for query in task.queries]
    owners = np.repeat(np.arange(len(found)), counts).tolist()
    arrays |= {
        "starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "order": order[arrays["rows"]],
        "grades": np.array(
            [judged[at].get(ids[row], 0) for at, row in zip(owners, arrays["rows"], strict=True)]
        ),
        "ideal": np.array([dcg(sorted(each.values(), reverse=True)[:DEPTH]) for each in judged]),
        "scale": np.array(index[POSTINGS].largest),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)  # type: ignore[arg-type]


def head_of(cosines: Floats) -> Floats:
    """The first ten, float32 [1, 10], padded by 0."""
    head = np.zeros((1, HEAD), np.float32)
    head[0, : len(cosines[:HEAD])] = cosines[:HEAD]
    return head


def open_candidates(name: str, path: Path) -> Candidates:
    """Opens a file of `gather`."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    own = {key: arrays.pop(key) for key in Candidates.__dataclass_fields__ if key in arrays}
    return Candidates(name=name, more=arrays, **own | {"scale": float(own["scale"])})


def open_index(root: Path, threads: int = 1) -> Index:
    """Opens the live version of an index root."""
    found = IndexRoot(root)
    return Index.open(found.folder(found.current()), threads=threads)
