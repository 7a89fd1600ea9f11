"""Recall of the approximate index against exact search, on queries like those of users.

The queries are titles and clicked queries of sampled documents, encoded by the query tower. Document vectors as
queries would overstate recall, because the index contains them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.index.stored_fields import StoredDocuments
from glow.index.vectors import DenseView, VectorRows
from glow.records import Document
from glow.runtime import Encoder
from glow.text import Preprocessor

SAMPLED_QUERIES = 200
DEPTH = 10
RECALL_FLOOR = 0.95
"""Lower recall causes a warning."""
SEED = 0
QUERY_FIELDS = ("title", "clicked_queries")
BLOCK_VECTORS = 4_096
# Below this, scores of two products of the same vectors may differ by rounding.
TIE = 1e-5


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall of an index against exact search."""

    # mean fraction of the exact top `depth` that the index returns, in [0, 1]; ties count as found
    recall: float
    depth: int  # hits per query
    queries: int  # number of sampled queries
    seed: int  # of the sample


def measure_recall(
    index: DenseView,
    vectors: VectorRows,  # float32 [n, D], in the index's order; read in blocks
    store: StoredDocuments,
    preprocessor: Preprocessor,
    encoder: Encoder,
) -> Recall:
    """Compares the index with exact search."""
    generator = np.random.default_rng(SEED)
    rows = generator.choice(store.count, min(SAMPLED_QUERIES, store.count), replace=False)
    texts = [_query_of(document, generator) for document in store.rows(np.sort(rows).tolist())]
    queries = encoder.encode([preprocessor.query(text) for text in texts])
    depth = min(DEPTH, vectors.shape[0])
    least = _exact_scores(queries, vectors, depth)[:, -1]
    _, nearest = index.search(queries, depth)
    scores = np.einsum("qd,qkd->qk", queries, vectors[np.maximum(nearest, 0)])
    hits = (scores >= least[:, None] - TIE) & (nearest >= 0)
    return Recall(float(hits.mean()), depth, len(texts), SEED)


def _query_of(document: Document, generator: np.random.Generator) -> str:
    """One of the document's titles and clicked queries, or the start of its text if it has neither."""
    fields = document.fields
    candidates = [text for name in QUERY_FIELDS for text in fields.get(name, ()) if text.strip()]
    if not candidates:
        candidates = [text for values in fields.values() for text in values if text.strip()][:1]
    return candidates[int(generator.integers(len(candidates)))]


def _exact_scores(queries: NDArray[np.float32], vectors: VectorRows, depth: int) -> NDArray[np.float32]:
    """The best scores of each query, float32 [q, depth], descending; vectors are read block by block."""
    best = np.full((len(queries), depth), -np.inf, np.float32)
    for start in range(0, vectors.shape[0], BLOCK_VECTORS):
        scores = queries @ vectors[start : start + BLOCK_VECTORS].T
        best = np.sort(np.concatenate([best, scores], axis=1), axis=1)[:, : -depth - 1 : -1]
    return best
