"""Query coverage: how much of a query each document holds; a factor of lexical scores in hybrid search.

BM25 adds up terms, so one frequent rare word can outweigh all others. A document that holds more of the query is usually
the better result; docs/results/quality.md has the gain.

    m   documents       w   different words of a query
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from glow.index.postings import ImpactsView
from glow.text import is_lexical

__all__ = ["coverage_scorer"]

DEPTH = 8
"""Up to this number of query words coverage counts in full; long questions are rarely repeated word for word."""


def coverage_scorer(
    impacts: ImpactsView, words: Sequence[str], idf: Callable[[str], float]
) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
    """Returns a function that computes the factors of documents' lexical scores.

    Args:
        impacts: index of the documents that hold a word.
        words: of the query; repeated words count repeatedly, and words that no document holds count too.
        idf: weight of a word, >= 0; from statistics that no delta changes, so that scores stay the same.

    Returns:
        Documents int64 [m] -> the fraction of the query that each holds, weighted by idf, to the power min(1, 8 / words); float32 [m]
        in [0, 1], 1 for a query without lexical words.
    """
    counts = Counter(word for word in words if is_lexical(word))
    shares = np.array([count * idf(word) for word, count in counts.items()])
    total = shares.sum()
    power = min(1.0, DEPTH / max(counts.total(), 1))

    def covered(documents: NDArray[np.int64]) -> NDArray[np.float32]:
        if total <= 0.0:
            return np.ones(len(documents), np.float32)
        held = np.where(impacts.by_word(list(counts), documents) > 0, shares / total, 0.0).sum(axis=1)
        # The rounding of many fractions may make their sum exceed 1.
        share: NDArray[np.float32] = (np.minimum(held, 1.0) ** power).astype(np.float32)
        return share

    return covered
