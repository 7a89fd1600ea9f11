"""Which tokens of a document are stored, and which of them share one code.

Source: token pooling (Clavié, Chaffin and Adams 2024) by Ward's clusters. Mutual nearest tokens are as good where we measured, and need numpy alone.

    L   tokens      P   numbers of a token      g   groups
"""

import numpy as np
from numpy.typing import NDArray

from glow.text import WeightedTokens

__all__ = ["BUDGET", "nearest", "pool", "stored_tokens"]

BUDGET = 160
"""Most groups of a document or passage; a shorter one keeps each of its tokens, as every text that the default model reads does."""


def stored_tokens(sequence: WeightedTokens) -> NDArray[np.int64]:
    """Places of the tokens that may answer a query's, int64, ascending, one at least.

    These are the tokens of words, punctuation among them. [CLS] and [SEP] stand for no word that a reason or a snippet could show. A text
    without a word has its [CLS] alone, so that every row has a token.
    """
    places = np.flatnonzero(sequence.word_ids >= 0)
    return places if len(places) else np.zeros(1, np.int64)


def pool(tokens: NDArray[np.float32], budget: int) -> NDArray[np.int64]:
    """The group of each token: in rounds, two groups become one if each is the other's nearest, the likest first.

    Args:
        tokens: float32 [L, P], finite, of length 1.
        budget: most groups, >= 1.

    Returns:
        int64 [L], the groups 0 to g - 1 in the order of their first tokens; g is L, or `budget` if that is less. The same tokens give the
        same groups.
    """
    label, sums = np.arange(len(tokens)), tokens.copy()
    while len(sums) > budget:
        partner, alike = nearest(sums)
        own = np.arange(len(sums))
        first = np.flatnonzero((partner[partner] == own) & (own < partner))
        if not len(first):  # equals in a ring, if a product's two halves were not the same to the bit
            first = own[:1].copy()
        first = first[np.argsort(-alike[first], kind="stable")[: len(sums) - budget]]
        own[partner[first]] = first
        stays = own == np.arange(len(sums))
        # Pairs share no group, so that each sum is of two.
        sums[first] += sums[partner[first]]
        label, sums = (np.cumsum(stays) - 1)[own[label]], sums[stays]
    return label


def nearest(sums: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest other group of each, the first among equals.

    Args:
        sums: float32 [g, P], the sum of each group's tokens; g >= 2.

    Returns:
        int64 [g], never the group itself, and float32 [g], the cosine of both.
    """
    unit = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    near = unit @ unit.T
    np.fill_diagonal(near, -2.0)
    partner = near.argmax(1)
    return partner, near[np.arange(len(sums)), partner]
