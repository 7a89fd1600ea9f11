"""Candidates of both heads for every judged query, with all that a ranking reads of them but late interaction.

m   candidates of all queries, one query's after another's      q   queries     D   dimensions
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, IndexRoot
from glow.evaluation import dcg, find_tasks, grades_by_query
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.runtime import Encoder, Model, preprocess_documents
from glow.search import DEFAULT_CANDIDATES, rank_dense, read_query
from glow.text import idf_lucene, is_lexical, is_punctuation
from research.late.states import encode_states, open_states, with_states

__all__ = ["Candidates", "encode_documents", "gather", "open_candidates", "open_index"]

FILE = "candidates.npz"
BATCH_TOKENS = 512
"""As a build's: small batches stay in a core's cache."""
DEPTH_OF_WORDS = 8
"""Words of a query up to which coverage counts fully (ranking.md: covered ^ min(1, 8 / words))."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Relevant candidates (r of them), each with all candidates of its query.

    Attributes:
        places, queries: int64 [r], among all candidates, and whose they are.
        mates: int64 [r, most candidates of a query], places; what is no mate is anything.
        is_mate: bool, of the same shape.
    """

    places: NDArray[np.int64]
    queries: NDArray[np.int64]
    mates: NDArray[np.int64]
    is_mate: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Candidates:
    """What the heads found in one collection.

    Attributes:
        name: of the collection.
        starts: int64 [q + 1].
        rows: int64 [m], ascending in a query.
        order: int64 [m], a candidate's place among equals.
        grades: int64 [m].
        ideal: float64 [q], DCG@10 of the best ranking there could be.
        cosine, impacts, covered: float32 [m].
        words: int64 [q], of the query, punctuation left out.
        uncertainty: float32 [q].
        scale: the largest impact of the index.
    """

    name: str
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    order: NDArray[np.int64]
    grades: NDArray[np.int64]
    ideal: NDArray[np.float64]
    cosine: NDArray[np.float32]
    impacts: NDArray[np.float32]
    covered: NDArray[np.float32]
    words: NDArray[np.int64]
    uncertainty: NDArray[np.float32]
    scale: float

    def __len__(self) -> int:
        return len(self.ideal)

    @cached_property
    def pairs(self) -> Pairs:
        """What measures are worked out of."""
        places = np.flatnonzero(self.grades > 0)
        queries = np.searchsorted(self.starts, places, side="right") - 1
        span = np.arange(int(np.diff(self.starts).max()))
        mates = self.starts[queries][:, None] + span
        is_mate = mates < self.starts[queries + 1][:, None]
        return Pairs(places, queries, np.where(is_mate, mates, 0), is_mate)

    def of_query(self, values: NDArray[np.float32] | NDArray[np.int64]) -> NDArray[np.float32]:
        """A value of each query, [q], as one of each candidate, [m]."""
        return np.repeat(values, np.diff(self.starts)).astype(np.float32)

    @property
    def today(self) -> NDArray[np.float32]:
        """What hybrid search of decision 6 scores by, float32 [m]."""
        openness = self.of_query(self.uncertainty)
        return (0.55 * self.cosine + 0.45 * openness * self.impacts / self.scale).astype(np.float32)

    @property
    def lexical(self) -> NDArray[np.float32]:
        """The column `words`, float32 [m]."""
        power = np.minimum(1.0, DEPTH_OF_WORDS / np.maximum(self.of_query(self.words), 1.0))
        return (self.impacts / self.scale * self.covered**power).astype(np.float32)


def gather(name: str, data: Path, index_root: Path, model: Model, work: Path, split: str = "dev") -> None:
    """Writes candidates of one collection, and token states of its queries.

    Args:
        name: of the collection, for the folder in `work`.
        data: its folder.
        index_root: of its documents, kind `flat`, with words.
        model: that the index was built with.
        work: where to write.
        split: whose queries are searched.
    """
    index = open_index(index_root)
    towers = with_states(model.folder, work / "model")
    encoder = Encoder(towers / QUERY_TOWER, index.preprocessor.pieces.pad_id)
    task = find_tasks(data, [split])[0]
    readings = [read_query(index, query.text) for query in task.queries]
    encode_states(encoder, [each.tokens for each in readings], work / name / "queries")
    vectors = open_states(work / name / "queries").vectors
    found = [_query(index, each.text, vector) for each, vector in zip(readings, vectors, strict=True)]
    columns = {key: np.concatenate([each[key] for each in found]) for key in found[0]}
    counts = [len(each["rows"]) for each in found]
    ids = [document.id for document in index[STORED_FIELDS].scan()]
    grades = grades_by_query(task.qrels)
    judged = [grades[query.id] for query in task.queries]
    owners = np.repeat(np.arange(len(found)), counts).tolist()
    rows = columns["rows"].astype(np.int64)
    words = [index.preprocessor.pieces.words(each.text) for each in readings]
    order = np.arange(len(ids)) if index.order is None else np.asarray(index.order, np.int64)
    kept: dict[str, Any] = dict(
        columns,
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        order=order[rows],
        grades=np.array([judged[at].get(ids[row], 0) for at, row in zip(owners, rows.tolist(), strict=True)]),
        ideal=np.array([dcg(sorted(each.values(), reverse=True)[:10]) for each in judged]),
        words=np.array([sum(not is_punctuation(word) for word in each) for each in words]),
        scale=index[POSTINGS].largest,
    )
    np.savez(work / name / FILE, **kept)


def encode_documents(name: str, index_root: Path, model: Model, work: Path) -> None:
    """Writes token states of all documents of one collection; arguments as for `gather`."""
    index = open_index(index_root)
    towers = with_states(model.folder, work / "model")
    encoder = Encoder(towers / DOCUMENT_TOWER, index.preprocessor.pieces.pad_id, batch_tokens=BATCH_TOKENS)
    chunks = preprocess_documents(index[STORED_FIELDS].scan(), index.preprocessor)
    encode_states(encoder, [each for _, _, chunk in chunks for each in chunk], work / name / "documents")


def open_index(root: Path) -> Index:
    """The live version of an index root."""
    found = IndexRoot(root)
    return Index.open(found.folder(found.current()))


def _query(index: Index, text: str, vector: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
    """Both heads' hits of one query, and their columns."""
    words = index.preprocessor.pieces.words(text)
    impacts = index[POSTINGS]
    dense = rank_dense(index, vector, DEFAULT_CANDIDATES)
    _, lexical = impacts.search(words, DEFAULT_CANDIDATES, None, index.order)
    rows = np.union1d(dense.rows, lexical)
    return {
        "rows": rows,
        "cosine": np.einsum("ij,j->i", index[VECTORS].vectors(rows), vector).astype(np.float32),
        "impacts": impacts.score(words, rows),
        "covered": _covered(index, words, rows),
        "uncertainty": np.array([_uncertainty(dense.scores)], np.float32),
    }


def _covered(index: Index, words: list[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The share of a query's idf that each document matches, float32 [m]; a word that no document holds counts as if one did."""
    impacts = index[POSTINGS]
    documents = len(impacts)
    held, total = np.zeros(len(rows)), 0.0
    # One word of each term, as often as the query has any of them.
    terms = Counter(impacts.analyzer.term(word) for word in words if is_lexical(word))
    some = {impacts.analyzer.term(word): word for word in words}
    for term, times in terms.items():
        holds = len(impacts.search([some[term]], documents)[1])
        weight = times * float(idf_lucene(np.float64(max(holds, 1)), float(documents)))
        total += weight
        held += weight * (impacts.score([some[term]], rows) > 0)
    return (held / (total or 1.0)).astype(np.float32)


def _uncertainty(cosines: NDArray[np.float32]) -> float:
    """How open the first ten vectors leave a question, in [0, 4]: what hybrid search of decision 6 has words count by."""
    top, tenth = float(cosines[0]), float(cosines[min(10, len(cosines)) - 1])
    return 2.0 * max(1.0 - top, 0.0) * float(np.exp(-(top - tenth) / 0.15))


def open_candidates(name: str, work: Path) -> Candidates:
    """Opens what `gather` wrote."""
    with np.load(work / name / FILE) as file:
        arrays = {key: file[key] for key in file.files}
    return Candidates(name=name, scale=float(arrays.pop("scale")), **arrays)
