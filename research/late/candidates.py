"""Candidates of both heads with the token states of queries and documents.

m   candidates of a query
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
from glow.evaluation import find_tasks
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.runtime import Encoder, Model, preprocess_documents
from glow.search import DEFAULT_CANDIDATES, rank_dense, read_query
from glow.text import idf_lucene, is_lexical, is_punctuation
from research.candidates import Candidates, gather, head_of, open_candidates, open_index
from research.late.states import encode_states, open_states, with_states

__all__ = ["encode_documents", "gather_states", "open_found"]

FILE = "candidates.npz"
BATCH_TOKENS = 512
"""As a build's: small batches stay in a core's cache."""


def gather_states(name: str, data: Path, index_root: Path, model: Model, work: Path, split: str) -> None:
    """Writes candidates of one collection, and token states of its queries.

    Args:
        name: of the collection, for the folder in `work`.
        data: its folder.
        index_root: of its documents, kind `flat`, with words.
        model: that the index was built with.
        work: where to write.
        split: whose queries are searched.
    """
    index, task = open_index(index_root), find_tasks(data, [split])[0]
    towers = with_states(model.folder, work / "model")
    encoder = Encoder(towers / QUERY_TOWER, index.preprocessor.pieces.pad_id)
    readings = [read_query(index, query.text) for query in task.queries]
    encode_states(encoder, [each.tokens for each in readings], work / name / "queries")
    vectors = open_states(work / name / "queries").vectors
    gather(work / name / FILE, index, task, lambda at: _query(index, readings[at].text, vectors[at]))


def open_found(name: str, work: Path) -> Candidates:
    """Opens what `gather_states` wrote; `more` has `words` [q], without punctuation."""
    return open_candidates(name, work / name / FILE)


def encode_documents(name: str, index_root: Path, model: Model, work: Path) -> None:
    """Writes token states of all documents of one collection; arguments as for `gather_states`."""
    index = open_index(index_root)
    towers = with_states(model.folder, work / "model")
    encoder = Encoder(towers / DOCUMENT_TOWER, index.preprocessor.pieces.pad_id, batch_tokens=BATCH_TOKENS)
    chunks = preprocess_documents(index[STORED_FIELDS].scan(), index.preprocessor)
    encode_states(encoder, [each for _, _, chunk in chunks for each in chunk], work / name / "documents")


def _query(index: Index, text: str, vector: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Both heads' hits of one query, and their columns."""
    words = index.preprocessor.pieces.words(text)
    impacts = index[POSTINGS]
    dense = rank_dense(index, vector, DEFAULT_CANDIDATES)
    _, lexical = impacts.search(words, DEFAULT_CANDIDATES, None, index.order)
    rows = np.union1d(dense.rows, lexical).astype(np.int64)
    return {
        "rows": rows,
        "cosine": np.einsum("ij,j->i", index[VECTORS].vectors(rows), vector).astype(np.float32),
        "impacts": impacts.score(words, rows),
        "covered": _covered(index, words, rows),
        "words": np.array([sum(not is_punctuation(word) for word in words)]),
        "head": head_of(dense.scores),
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
