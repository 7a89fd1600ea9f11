"""Binary codes of a document's tokens: for each group of similar tokens, the signs of its mean and a representative token.

r   rows        t   groups of all rows      g   groups of one       L   tokens      P   dimensions of a token
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.index.late_interaction.pooling import pool, stored_tokens
from glow.text import WeightedTokens

__all__ = ["CodedTokens", "code_texts", "encode_tokens"]


class CodedTokens(NamedTuple):
    """Rows in their stored form.

    Attributes:
        lengths: number of groups of each, int64 [r].
        codes: uint8 [t, P / 8], one row after another.
        places: uint16 [t], position of the group's representative in the document or passage; [CLS] is 0.
    """

    lengths: NDArray[np.int64]
    codes: NDArray[np.uint8]
    places: NDArray[np.uint16]


def encode_tokens(tokens: NDArray[np.float32], budget: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Binary codes of one document's tokens.

    Args:
        tokens: float32 [L, P], finite, of norm 1; L >= 1, P a multiple of 8.
        budget: most groups, >= 1.

    Returns:
        uint8 [g, P / 8], a bit for each dimension of a group's mean, 1 if it is at least 0, and int64 [g], the token of each group
        that is nearest to its mean; of ties, the first.
    """
    label = pool(tokens, budget)
    mates = np.argsort(label, kind="stable")
    sums = np.add.reduceat(tokens[mates], np.unique(label[mates], return_index=True)[1], axis=0)
    likeness = np.einsum("lp,lp->l", tokens, sums[label])
    best_first = np.lexsort((-likeness, label))
    leaders = best_first[np.unique(label[best_first], return_index=True)[1]]
    return np.packbits(sums >= 0, axis=1), leaders


def code_texts(
    sequences: Sequence[WeightedTokens], tokens: Sequence[NDArray[np.float32]], budget: int
) -> CodedTokens:
    """The stored form of documents or passages, in their order.

    Args:
        sequences: their tokens; at least one text.
        tokens: float32 [L or more, P] of each, finite, of norm 1; padding is ignored.
        budget: most groups of a row, >= 1.
    """
    kept = [stored_tokens(each) for each in sequences]
    coded = [encode_tokens(each[places], budget) for each, places in zip(tokens, kept, strict=True)]
    return CodedTokens(
        np.array([len(codes) for codes, _ in coded], np.int64),
        np.concatenate([codes for codes, _ in coded]),
        np.concatenate([places[leaders] for places, (_, leaders) in zip(kept, coded, strict=True)]).astype(
            np.uint16
        ),
    )
