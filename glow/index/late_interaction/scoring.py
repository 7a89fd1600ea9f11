"""Scores of stored tokens for a query: late interaction, and the choice of the tokens that are stored."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.text import WeightedTokens


def tokens_of_field(
    # uint16 [t], of every word token in a text that begins with [CLS] and ends each field with [SEP]. Pooled
    # tokens are incomplete, so their places give no answer
    places: NDArray[np.uint16],
    field: int,  # its position in the schema, >= 0
) -> slice:
    """The tokens of one field. Returns slice of the t tokens; empty for a field without words."""
    known = places.tolist()

    def before(number: int) -> int:
        """How many tokens before this one are not stored."""
        return int(known[number]) - number

    first = bisect_left(range(len(known)), field + 1, key=before)
    return slice(first, bisect_left(range(len(known)), field + 2, first, key=before))


BUDGET = 160
"""Most groups of a document or passage; a shorter one, such as every text of the default model, keeps each of its tokens."""


def stored_tokens(sequence: WeightedTokens) -> NDArray[np.int64]:
    """Positions of the tokens that may match a query's, int64, ascending, at least one.

    These are the tokens of words, including punctuation. [CLS] and [SEP] belong to no word that an explanation or a snippet could
    show. A text without words keeps only its [CLS], so that every row has a token.
    """
    places = np.flatnonzero(sequence.word_ids >= 0)
    return places if len(places) else np.zeros(1, np.int64)


def pool(
    tokens: NDArray[np.float32],  # float32 [L, P], finite, of norm 1
    budget: int,  # most groups, >= 1
) -> NDArray[np.int64]:
    """The group of each token: in rounds, two groups are merged if each is the other's nearest, the most similar first.

    Returns int64 [L], groups 0 to g - 1 in the order of their first tokens; g is L, or `budget` if that is less. The
    result is deterministic.
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


def nearest(
    sums: NDArray[np.float32],  # float32 [g, P], the sum of each group's tokens; g >= 2
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest other group of each; of ties, the first. Returns int64 [g], never the group itself, and float32 [g], their cosine."""
    unit = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    near = unit @ unit.T
    np.fill_diagonal(near, -2.0)
    partner = near.argmax(1)
    return partner, near[np.arange(len(sums)), partner]


CHUNK = 512
"""Number of tokens that are unpacked at once: with 128 dimensions they fit a core's cache beside the query."""
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
"""The bits of each byte, as numbers, [256, 8]; a look-up is faster than unpacking and converting."""
LEVELS = 32767
"""Largest rounded value of a query token."""
MOST_NUMBERS = 512
"""Limit of P: no sum reaches 2²⁴, from which on float32 has gaps between whole numbers."""


class Answers(NamedTuple):
    """The best match of each query token."""

    places: NDArray[np.int64]  # int64 [q] or [m, q], positions of the document's tokens
    similarities: NDArray[np.float32]  # float32 of the same shape


def max_sim(
    codes: NDArray[np.uint8],  # uint8 [t, P / 8] of m rows, one after another
    starts: NDArray[np.int64],  # int64 [m], the start of each row; every row has a token
    tokens: NDArray[np.float32],  # float32 [q, P], finite, of norm 1
    weights: NDArray[np.float32],  # float32 [q], which add up to 1
) -> NDArray[np.float32]:
    """The weighted mean, over a query's tokens, of each token's best similarity in a row.

    Returns float32 [m], each in about -1 to 1; 0 for a query without tokens.
    """
    query, unit = _whole(tokens)
    found = _products(codes, query)
    best = np.maximum.reduceat(found, starts, axis=0) if len(starts) else found
    weighed = np.einsum("mq,q->m", _signed(best, query, unit), weights.astype(np.float64))
    scores: NDArray[np.float32] = weighed.astype(np.float32)
    return scores


def best_tokens(
    codes: NDArray[np.uint8],  # codes, places: uint8 [t, P / 8] and uint16 [t] of the row, t >= 1
    places: NDArray[np.uint16],
    tokens: NDArray[np.float32],  # float32 [q, P], finite, of norm 1
) -> Answers:
    """The best match of each query token in one row, as in `max_sim`; of ties, the first."""
    query, unit = _whole(tokens)
    found = _products(codes, query)
    best = found.argmax(0)
    signed = _signed(found[best, np.arange(len(tokens))][None], query, unit)[0]
    return Answers(places[best].astype(np.int64), signed.astype(np.float32))


def best_in(
    codes: NDArray[np.uint8],  # uint8 [t, P / 8] of some rows
    parts: Sequence[slice],
    tokens: NDArray[np.float32],  # float32 [q, P], finite, of norm 1
) -> Answers:
    """The best match of each query token in each of several parts, as in `max_sim`; of ties, the first.

    Returns both [m, q]; positions count from the start of their part.
    """
    query, unit = _whole(tokens)
    found, each = _products(codes, query), np.arange(len(tokens))
    places = np.empty((len(parts), len(tokens)), np.int64)
    sums = np.empty((len(parts), len(tokens)), np.float32)
    for number, part in enumerate(parts):
        own = found[part]
        own.argmax(0, out=places[number])
        sums[number] = own[places[number], each]
    return Answers(places, _signed(sums, query, unit).astype(np.float32))


def _whole(tokens: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """A query's values as whole numbers, float32 [P, q], and the unit of each token's, float64 [q]."""
    unit = np.abs(tokens).max(1, initial=1e-9).astype(np.float64) / LEVELS
    return np.ascontiguousarray(np.rint(tokens / unit[:, None]).T.astype(np.float32)), unit


def _products(codes: NDArray[np.uint8], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums of the query's values at the 1 bits of each code: whole numbers, float32 [t, q]."""
    found = np.empty((len(codes), query.shape[1]), np.float32)
    width = codes.shape[1]
    bits = np.empty((min(CHUNK, len(codes)), width, 8), np.float32)
    for at in range(0, len(codes), CHUNK):
        block = codes[at : at + CHUNK]
        here = bits[: len(block)]
        _BITS.take(block, axis=0, out=here, mode="clip")  # the faster of the modes that do not copy
        np.matmul(here.reshape(len(block), 8 * width), query, out=found[at : at + CHUNK])
    return found


def _signed(
    sums: NDArray[np.float32], query: NDArray[np.float32], unit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Cosines of query tokens and sign vectors, float64 [m, q], from the sums over 1 bits [m, q]."""
    total = query.sum(0, dtype=np.float64)
    signed: NDArray[np.float64] = (2.0 * sums.astype(np.float64) - total) * (unit / np.sqrt(len(query)))
    return signed
