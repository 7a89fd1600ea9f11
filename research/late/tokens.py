"""How a document's tokens are kept, and how a query's tokens find the best of them.

L   tokens of a document    g   groups that are kept    P   numbers of a token      m   documents       q   tokens of a query
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.late.states import TokenStates, unit

__all__ = ["QUERY_WEIGHTS", "Form", "Projection", "best_matches", "fit_projection", "pool", "weigh"]

Floats = NDArray[np.float32]
LEVELS = np.array([-1.510, -0.4528, 0.4528, 1.510], np.float32)
THRESHOLDS = np.array([-0.9816, 0.0, 0.9816], np.float32)
"""Of two bits, in standard deviations: the best four levels for a normal distribution (Max 1960, table I)."""
QUERY_WEIGHTS = {"equal": 0.0, "root": 0.5, "bm25": 1.0}
"""Powers of a token's BM25 weight."""


@dataclass(frozen=True, slots=True)
class Form:
    """How tokens are kept.

    Attributes:
        size: P; 0: all numbers of a state, as they are.
        bits: of a number; 32: floats.
        budget: most groups of a document; below 1: groups a token; 0: every token.
        specials: whether [CLS] and [SEP] of documents are among them.
        lexical: whether only tokens of words are that a lexical index holds: neither stop words nor punctuation.
    """

    size: int = 0
    bits: int = 32
    budget: float = 0
    specials: bool = True
    lexical: bool = False

    @property
    def name(self) -> str:
        """Such as `128x1-48`."""
        return f"{self.size or 384}x{self.bits}-{f'{self.budget:g}' if self.budget else 'all'}{self.tokens}"

    def groups(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many groups documents of so many tokens are kept as."""
        if 0 < self.budget < 1:
            return np.asarray(np.ceil(tokens * self.budget))
        return np.asarray(np.minimum(tokens, self.budget or np.inf))

    @property
    def tokens(self) -> str:
        """What is left out, for the name."""
        return "-lexical" if self.lexical else "" if self.specials else "-words"

    def chosen(self, document: TokenStates) -> NDArray[np.bool_]:
        """Which tokens of a document are kept, bool [L]; all where none would be."""
        every = np.ones(len(document.specials), np.bool_)
        wanted = document.lexical if self.lexical else every if self.specials else ~document.specials
        return wanted if wanted.any() else every

    def bytes_of(self, tokens: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Codes and places (two bytes a group; floats have none) of documents with so many tokens."""
        groups = self.groups(np.asarray(tokens))
        return np.asarray(groups * ((self.size or 384) * self.bits / 8 + (2 if self.budget else 0)))


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Directions of the states of both towers, best first.

    Attributes:
        directions: float32 [H, H].
        deviations: float32 [H], of numbers of projected documents' tokens, by direction.
    """

    directions: Floats
    deviations: Floats

    def __call__(self, states: Floats, size: int) -> Floats:
        """States as P numbers of length 1 a token; size 0: as they are."""
        return unit(states @ self.directions[:, :size]) if size else states


def fit_projection(documents: Sequence[Floats], queries: Sequence[Floats]) -> Projection:
    """The singular directions of normalised states, not centred; both towers weigh the same.

    Args:
        documents, queries: float32 [L, H] each.
    """
    sums = [np.mean([each.T @ each / len(each) for each in side], axis=0) for side in (documents, queries)]
    _, directions = np.linalg.eigh(sum(sums))
    directions = np.ascontiguousarray(directions[:, ::-1].astype(np.float32))
    return Projection(directions, (np.concatenate(documents) @ directions).std(0))


def pool(tokens: Floats, budget: int) -> NDArray[np.int64]:
    """The group of each token, in [0, budget): mutual nearest are merged, in rounds.

    Args:
        tokens: float32 [L, P], of length 1.
        budget: most groups, >= 1.
    """
    label, sums = np.arange(len(tokens)), tokens.copy()
    while len(sums) > budget:
        means = unit(sums)
        near = means @ means.T
        np.fill_diagonal(near, -2.0)
        partner, own = near.argmax(1), np.arange(len(sums))
        first = np.flatnonzero((partner[partner] == own) & (own < partner))
        if not len(first):  # equals in a ring
            first = own[:1].copy()
        first = first[np.argsort(-near[first, partner[first]], kind="stable")[: len(sums) - budget]]
        own[partner[first]] = first
        own = np.unique(own, return_inverse=True)[1]
        label, merged = own[label], np.zeros((int(own.max()) + 1, sums.shape[1]), np.float32)
        np.add.at(merged, own, sums)
        sums = merged
    return label


def keep(form: Form, projection: Projection, document: TokenStates) -> NDArray[Any]:
    """A document's tokens as they are kept: signs as -1 and 1, codes 0 to 3 of two bits, or floats; [g, P]."""
    tokens = projection(document.states[form.chosen(document)], form.size)
    if form.budget:
        label = pool(tokens, int(form.groups(np.array(len(tokens)))))
        sums = np.zeros((int(label.max()) + 1, tokens.shape[1]), np.float32)
        np.add.at(sums, label, tokens)
        tokens = unit(sums)
    if form.bits == 1:
        return np.where(tokens >= 0, 1, -1).astype(np.int8)
    if form.bits == 2:
        scaled = tokens / projection.deviations[: form.size]
        return np.searchsorted(THRESHOLDS, scaled).astype(np.int8)
    return tokens.astype(np.float16)


def read_back(form: Form, projection: Projection, kept: NDArray[Any]) -> Floats:
    """What `keep` made as vectors of length 1."""
    if form.bits == 1:
        return kept.astype(np.float32) / np.float32(np.sqrt(form.size))
    if form.bits == 2:
        return unit(LEVELS[kept] * projection.deviations[: form.size])
    return kept.astype(np.float32)


def best_matches(documents: Floats, starts: NDArray[np.int64], query: Floats) -> Floats:
    """The highest cosine of each token of a query in each document, [m, q].

    Args:
        documents: float32 [g of all, P], one document's after another's.
        starts: int64 [m].
        query: float32 [q, P].
    """
    found: Floats = np.maximum.reduceat(documents @ query.T, starts, axis=0)
    return found


def weigh(
    matches: Floats, weights: Floats, specials: NDArray[np.bool_], power: float, with_specials: bool
) -> Floats:
    """The score of each document, [m]: a weighted mean over the query's tokens.

    Args:
        matches: float32 [m, q].
        weights: float32 [q], BM25.
        specials: bool [q].
        power: of the weights; 0: all count the same.
        with_specials: whether [CLS] and [SEP] of the query count.
    """
    share = np.maximum(weights, 0.0) ** power
    if not with_specials and not specials.all():
        share = np.where(specials, 0.0, share)
    total = float(share.sum())
    share = share / total if total > 0 else np.full(len(share), 1.0 / len(share))
    return (matches @ share).astype(np.float32)
