"""Full retrieval and re-ranking by a trained model, against BM25 and TF-IDF over the same terms.

N   documents       W   distinct terms of the queries       C   chunk of documents
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from research.ndrm.model import Ndrm, TermStatistics
from research.ndrm.train import scores_of
from research.ndrm.words import TermCollection

__all__ = ["bm25", "rank", "rerank", "term_scores", "tf_idf"]

CHUNK_DOCUMENTS = 64
MAX_CELLS = 200_000
"""Most pairs of a term and a document word whose kernels are in memory at once."""
K1, B = 1.2, 0.75


def term_scores(model: Ndrm, terms: TermCollection, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """The contribution of each term to each document, float32 [W, N]."""
    count = len(terms.documents)
    made = np.empty((len(wanted), count), np.float32)
    every = torch.from_numpy(wanted)
    with torch.inference_mode():
        words = model.query_words(every) if model.config.kind != "explicit" else None
        for start in range(0, count, CHUNK_DOCUMENTS):
            rows = np.arange(start, min(start + CHUNK_DOCUMENTS, count))
            ids, mask = terms.padded(rows.tolist())
            context = model.document(ids, mask) if words is not None else None
            block = max(1, MAX_CELLS // max(ids.numel(), 1))
            for first in range(0, len(wanted), block):
                piece = every[first : first + block]
                latent = None
                if words is not None and context is not None:
                    latent = model.latent(words[first : first + block][None], context, mask)
                given = _statistics(terms, piece, rows)
                made[first : first + block, rows] = model.combine(latent, given).T.numpy()
    return made


def _statistics(terms: TermCollection, wanted: torch.Tensor, rows: NDArray[np.int64]) -> TermStatistics:
    places = {int(term): place for place, term in enumerate(wanted.tolist())}
    tf = np.zeros((len(rows), len(places)), np.float32)
    for place, row in enumerate(rows.tolist()):
        for term, times in terms.counts[row].items():
            if (at := places.get(term)) is not None:
                tf[place, at] = times
    idf = torch.from_numpy(terms.idf)[wanted][None]
    length = torch.from_numpy(terms.lengths[rows])[:, None]
    return TermStatistics(torch.from_numpy(tf), idf, length, torch.ones(1, 1, dtype=torch.bool))


def bm25(terms: TermCollection, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """BM25 of each term in each document, float32 [W, N]."""
    tf = _counts(terms, wanted)
    df = (tf > 0).sum(1, keepdims=True)
    idf = np.log(1.0 + (tf.shape[1] - df + 0.5) / (df + 0.5))
    length = 1.0 - B + B * terms.lengths / max(float(terms.lengths.mean()), 1.0)
    return np.asarray(idf * tf * (K1 + 1.0) / (tf + K1 * length), np.float32)


def tf_idf(terms: TermCollection, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """(1 + ln tf) idf over the square root of the document's length, float32 [W, N]."""
    tf = _counts(terms, wanted)
    df = np.maximum((tf > 0).sum(1, keepdims=True), 1)
    weight = np.where(tf > 0, 1.0 + np.log(np.maximum(tf, 1.0)), 0.0) * np.log(tf.shape[1] / df)
    return np.asarray(weight / np.sqrt(np.maximum(terms.lengths, 1.0)), np.float32)


def _counts(terms: TermCollection, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    places = {int(term): place for place, term in enumerate(wanted.tolist())}
    tf = np.zeros((len(wanted), len(terms.documents)), np.float32)
    for row, counts in enumerate(terms.counts):
        for term, times in counts.items():
            if (at := places.get(term)) is not None:
                tf[at, row] = times
    return tf


def rank(
    terms: TermCollection,
    wanted: NDArray[np.int64],
    scores: NDArray[np.float32],
    k: int = 100,
    among: Sequence[NDArray[np.int64]] | None = None,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rows and scores of the k best documents of each query; a repeated term counts again.

    Args:
        terms: the collection with the queries.
        wanted: int64 [W], the scored terms.
        scores: float32 [W, N].
        k: documents per query.
        among: candidates of each query; None: all documents.
    """
    places = {int(term): place for place, term in enumerate(wanted.tolist())}
    found = []
    for number, query in enumerate(terms.queries):
        total = scores[[places[int(term)] for term in query if int(term) in places]].sum(0)
        if not np.ndim(total):
            total = np.zeros(scores.shape[1], np.float32)
        rows = np.arange(len(total)) if among is None else among[number]
        best = rows[np.argsort(-total[rows], kind="stable")[:k]]
        found.append((best, total[best]))
    return found


def rerank(
    model: Ndrm, terms: TermCollection, hundred: Sequence[NDArray[np.int64]]
) -> Mapping[int, tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Re-ranks BM25's top hundred of each query, query by query, as needed for contextual queries."""
    ranked = {}
    with torch.inference_mode():
        for query, rows in enumerate(hundred):
            if not len(terms.queries[query]) or not len(rows):
                continue
            scores = scores_of(model, terms, [query], rows[None])[0].numpy()
            order = np.argsort(-scores, kind="stable")
            ranked[query] = rows[order], scores[order]
    return ranked
