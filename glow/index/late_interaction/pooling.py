"""Chooses the tokens of a document to store, and groups those that share one code.

Source: token pooling (Clavié, Chaffin and Adams 2024) with Ward's clusters. Mutual nearest tokens measured as good, and only need numpy.

    L   tokens      P   dimensions of a token      g   groups
"""

import numpy as np
from numpy.typing import NDArray

from glow.text import WeightedTokens

__all__ = ["BUDGET", "nearest", "pool", "stored_tokens"]

BUDGET = 160
"""Most groups of a document or passage; a shorter one, such as every text of the default model, keeps each of its tokens."""


def stored_tokens(sequence: WeightedTokens) -> NDArray[np.int64]:
    """Positions of the tokens that may match a query's, int64, ascending, at least one.

    These are the tokens of words, including punctuation. [CLS] and [SEP] belong to no word that an explanation or a snippet could
    show. A text without words keeps only its [CLS], so that every row has a token.
    """
    places = np.flatnonzero(sequence.word_ids >= 0)
    return places if len(places) else np.zeros(1, np.int64)


def pool(tokens: NDArray[np.float32], budget: int) -> NDArray[np.int64]:
    """The group of each token: in rounds, two groups are merged if each is the other's nearest, the most similar first.

    Args:
        tokens: float32 [L, P], finite, of norm 1.
        budget: most groups, >= 1.

    Returns:
        int64 [L], groups 0 to g - 1 in the order of their first tokens; g is L, or `budget` if that is less. The result is
        deterministic.
    """
    label, sums = np.arange(len(tokens)), tokens.copy()
    while len(sums) > budget:
        partner, alike = nearest(sums)
        own = np.arange(len(sums))
        first = np.flatnonzero((partner[partner] == own) & (own < partner))
        if not len(first):  # a ring of ties, possible if a product's two halves differed in a bit
            first = own[:1].copy()
        first = first[np.argsort(-alike[first], kind="stable")[: len(sums) - budget]]
        own[partner[first]] = first
        stays = own == np.arange(len(sums))
        # No group is in two pairs, so each sum has two terms.
        sums[first] += sums[partner[first]]
        label, sums = (np.cumsum(stays) - 1)[own[label]], sums[stays]
    return label


def nearest(sums: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest other group of each; of ties, the first.

    Args:
        sums: float32 [g, P], the sum of each group's tokens; g >= 2.

    Returns:
        int64 [g], never the group itself, and float32 [g], their cosine.
    """
    unit = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    near = unit @ unit.T
    np.fill_diagonal(near, -2.0)
    partner = near.argmax(1)
    return partner, near[np.arange(len(sums)), partner]
