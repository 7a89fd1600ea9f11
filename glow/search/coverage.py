"""How much of a query each document holds: what its words count by beside vectors.

BM25 adds up words, so one rare word that comes often can outweigh all others. A document that holds more of what was asked for is
the better answer; docs/results/quality.md has what that is worth.

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
"""Words of a query up to which coverage counts in full; nobody repeats a long question."""


def coverage_scorer(
    impacts: ImpactsView, words: Sequence[str], idf: Callable[[str], float]
) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
    """A function that tells what to multiply documents' lexical scores by.

    Args:
        impacts: which documents hold a word.
        words: of the query; one that comes again counts again, one that no document holds counts too.
        idf: what a word counts, >= 0; of a table that no delta changes, so that scores stay what they are.

    Returns:
        Documents int64 [m] -> the share of the query that each holds, by idf, to the power min(1, 8 / words); float32 [m] in [0, 1],
        1 for a query without lexical words.
    """
    counts = Counter(word for word in words if is_lexical(word))
    total = sum(count * idf(word) for word, count in counts.items())
    power = min(1.0, DEPTH / max(counts.total(), 1))

    def covered(documents: NDArray[np.int64]) -> NDArray[np.float32]:
        if total <= 0.0:
            return np.ones(len(documents), np.float32)
        held = np.zeros(len(documents))
        for word, count in counts.items():
            held += count * idf(word) / total * (impacts.score([word], documents) > 0)
        # Of many shares the sum may pass 1 by a rounding.
        share: NDArray[np.float32] = (np.minimum(held, 1.0) ** power).astype(np.float32)
        return share

    return covered
