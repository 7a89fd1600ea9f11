"""Hybrid search: a dense and a lexical ranking of one query, fused.

`rrf` adds up reciprocal ranks (`glow.search.hybrid`). `convex` adds up scores on one scale, which keeps the distances between
hits (Bruch, Gai and Ingber 2023, https://arxiv.org/abs/2210.11934). Departs from them in the scale: the cosine is not
changed, and the lexical score counts less if the dense ranking is certain of its first hits. Terms help most if vectors
are uncertain, and harm if they are certain. In a question they count less. A document that only one ranking holds gets its true score from the other
retriever if that can be computed. docs/decisions/0041 has the measurements.

    c   candidates of one ranking       m   documents that either ranking contains
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np
from numpy.typing import NDArray

from glow.index import RRF_K, Fusion, Ranking, best, run_all
from glow.index.postings import ImpactsView
from glow.records import Hit
from glow.search.query import NO_OTHERS, Others
from glow.text import searched_words

Scorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Rows int64 [x] -> their true scores float32 [x] for the current query."""
DEPTH = 8
"""Up to this number of query words coverage counts in full; long questions are rarely repeated word for word."""


def coverage_scorer(
    impacts: ImpactsView,
    words: Sequence[str],  # of the query; repeated words, and those that no document holds, count too
    idf: Callable[[str], float],  # weight of a word, >= 0; from statistics that no delta changes
    others: Others = NO_OTHERS,  # what else counts as a word; one that consists of several words needs all
    power: float | None = None,  # None: min(1, 8 / words)
) -> Scorer:
    """Makes the factors of documents' lexical scores: the fraction of the query that each holds, by idf, to a power, in [0, 1].

    It is 1 for a query without words. Stop words count if it has no others.
    """
    counts = Counter(searched_words(words))
    shares = np.array([count * idf(word) for word, count in counts.items()])
    total = shares.sum()
    power = min(1.0, DEPTH / max(counts.total(), 1)) if power is None else power

    def covered(documents: NDArray[np.int64]) -> NDArray[np.float32]:
        if total <= 0.0:
            return np.ones(len(documents), np.float32)
        holds = held_words(impacts, list(counts), documents, others)
        # The rounding of many fractions may make their sum exceed 1.
        sums = np.minimum(np.where(holds, shares / total, 0.0).sum(axis=1), 1.0)
        fractions: NDArray[np.float32] = (sums**power).astype(np.float32)
        return fractions

    return covered


def held_words(
    impacts: ImpactsView, words: Sequence[str], documents: NDArray[np.int64], others: Others = NO_OTHERS
) -> NDArray[np.bool_]:
    """Whether each document, int64 [m], holds each word or what else counts as it: bool [m, words]."""
    further = (each for word in words for other in others.get(word, ()) for each in other)
    place = {word: at for at, word in enumerate(dict.fromkeys([*words, *further]))}
    holds = impacts.by_word(list(place), documents) > 0
    counts: NDArray[np.bool_] = holds[:, : len(words)].copy()
    for at, word in enumerate(words):
        for other in others.get(word, ()):
            counts[:, at] |= holds[:, [place[each] for each in other]].all(axis=1)
    return counts


def rrf(
    rankings: Sequence[Sequence[str]],  # document ids, best first; a repeated one counts at its best rank
    k: int = RRF_K,  # reduces the advantage of the first ranks, >= 0
) -> list[Hit]:
    """Fuses rankings. Returns every document once, best first; ties go to the smaller id, so the order of the rankings never matters."""
    shares: dict[str, list[float]] = {}
    for ranking in rankings:
        seen: set[str] = set()
        for rank, document in enumerate(ranking, start=1):
            if document not in seen:
                seen.add(document)
                shares.setdefault(document, []).append(1.0 / (k + rank))
    # fsum rounds once: the last bit of a plain sum, and so ties, would depend on the order of the rankings.
    hits = [Hit(document, fsum(parts)) for document, parts in shares.items()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.document_id))


def fuse(
    runs: Sequence[Mapping[str, Sequence[Hit]]],  # query id -> hits, best first; at least one run
    top_k: int,  # number of hits of each run to fuse, and of hits to keep, >= 1
    k: int = RRF_K,
) -> Mapping[str, Sequence[Hit]]:
    """Fuses runs query by query. Returns the queries in the order in which the runs first name them."""
    queries = dict.fromkeys(query for run in runs for query in run)
    return {
        query: rrf([[hit.document_id for hit in run.get(query, ())[:top_k]] for run in runs], k)[:top_k]
        for query in queries
    }


QUESTION_WORDS = {
    **dict.fromkeys("what how why when where who which whose whom".split(), 3),
    **dict.fromkeys(
        "is are can could do does did should would will was were has have may must am shall".split(), 4
    ),
}
"""First word of a question -> how many words it has at least."""
QUESTION_SHARE = 0.3
"""Weight of terms in a question, relative to other queries: its words are repeated less (docs/results/models.md)."""
IDENTIFIER_SHARE = 8.0
"""The same for a part number: the documents that hold it come before all that look like it."""
_IDENTIFIER = re.compile(r"(?=\S*\d)\S{3,}")


def lexical_share(words: Sequence[str], text: str = "") -> float:
    """The factor of the lexical weight for a query's words, as preprocessing yields them.

    It is less than 1 for a question, and more than 1 for a text without spaces that has a digit, such as a part number.
    "can opener" and "may 2024" are not questions.
    """
    if _IDENTIFIER.fullmatch(text.strip()):
        return IDENTIFIER_SHARE
    is_question = bool(words) and (
        words[-1] == "?" or QUESTION_WORDS.get(words[0], len(words) + 1) <= len(words)
    )
    return QUESTION_SHARE if is_question else 1.0


SCORED_AT_ONCE = 8192
HEAD = 10
"""Number of dense hits whose spread gives the certainty of the ranking."""
SPREAD = 0.15
Floats = NDArray[np.float64]
NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """A fused ranking of all documents that either retriever found."""

    scores: NDArray[np.float32]  # float32 [m], descending
    rows: NDArray[np.int64]  # int64 [m], each once
    parts: Mapping[str, NDArray[np.float32]]  # `dense`, `lexical` -> float32 [m]; NaN if unknown
    # float32 [h], evidence of the documents nearest to the query, regardless of filters; None: unknown, or fused by ranks
    head: NDArray[np.float32] | None = None
    openness: float = 1.0  # `uncertainty` of these vectors


def fuse_rankings(
    fusion: Fusion,
    dense: Ranking,  # candidates, best first; scores finite. A repeated row counts at its best place
    lexical: Ranking,
    order: NDArray[np.uint32] | None = None,  # uint32 [n], each document's place among ties; None: its row
    # True scores of rows that only the other retriever gathered; None: unknown, they count as its lowest candidate
    score_dense: Scorer | None = None,
    score_lexical: Scorer | None = None,
    lexical_scale: float | None = None,  # `ImpactIndex.largest`; None: the highest lexical score here
    # The first of the dense ranking of all documents, regardless of filters; None: no filter applies
    head: Ranking | None = None,
    score_covered: Scorer | None = None,  # `coverage_scorer`, for `convex`; None: 1 for every row
    lexical_share: float = 1.0,  # factor of the lexical weight under `convex` (`lexical_share`)
    further: NDArray[np.int64] = NO_ROWS,  # int64 [x], other rows to rank
    *,
    waits: bool = False,  # whether the first two scorers wait for a store, so that they are called at once
) -> Fused:
    """Fuses the candidates of both retrievers.

    The result depends only on the candidates, so every page is a part of the same ranking.
    """
    first, second = len(dense[1]), len(dense[1]) + len(lexical[1])
    rows, places = np.unique(np.concatenate([dense[1], lexical[1], further]), return_inverse=True)
    parts = {
        "dense": _Candidates(dense[0], places[:first], rows, score_dense),
        "lexical": _Candidates(lexical[0], places[first:second], rows, score_lexical),
    }
    nearest = dense if head is None else head
    near = nearest[0][:HEAD], nearest[1][:HEAD]
    run_all([part.complete for part in parts.values()], waits=waits)
    if fusion.method == "rrf":
        ranks = {name: part.reciprocal_ranks(fusion.k) for name, part in parts.items()}
        return _fused(_sum(fusion, ranks["dense"], ranks["lexical"]), rows, parts, order)
    largest = np.nanmax(parts["lexical"].scores, initial=0.0) if lexical_scale is None else lexical_scale
    openness = uncertainty(near[0])
    scale = lexical_share * openness / (float(largest) or 1.0)  # 0 if no word of the query is known
    words = parts["lexical"].filled() * _covered(score_covered, rows)
    fused = _fused(_sum(fusion, parts["dense"].filled(), scale * words), rows, parts, order)
    if head is None:
        by_row = np.argsort(fused.rows, kind="stable")
        places = by_row[np.searchsorted(fused.rows[by_row], near[1])]
        return replace(fused, head=fused.scores[places], openness=openness)
    if score_lexical is None:
        return replace(fused, openness=openness)
    words = score_lexical(near[1]).astype(np.float64) * _covered(score_covered, near[1])
    scores = _sum(fusion, near[0].astype(np.float64), scale * words)
    return replace(fused, head=scores.astype(np.float32), openness=openness)


def _covered(score: Scorer | None, rows: NDArray[np.int64]) -> Floats:
    return np.ones(len(rows)) if score is None else score(rows).astype(np.float64)


def _sum(fusion: Fusion, dense: Floats, lexical: Floats) -> Floats:
    """Evidence, float64 [m], from two columns of that length."""
    total = fusion.weights.dense + fusion.weights.lexical
    evidence: Floats = fusion.weights.dense / total * dense + fusion.weights.lexical / total * lexical
    return evidence


def _fused(
    evidence: Floats,
    rows: NDArray[np.int64],
    parts: Mapping[str, "_Candidates"],
    order: NDArray[np.uint32] | None,
) -> Fused:
    """The documents sorted by their evidence, float64 [m]."""
    scores, ranked = best(evidence.astype(np.float32), rows, max(len(rows), 1), order)
    places = np.searchsorted(rows, ranked)
    own = {name: part.scores[places].astype(np.float32) for name, part in parts.items()}
    return Fused(scores, ranked, own)


def contributions(fusion: Fusion, parts: Mapping[str, float], evidence: float) -> dict[str, float]:
    """Parts of a hit's evidence under `convex`, which add up to it: `dense` and `words`."""
    share = fusion.weights.dense / (fusion.weights.dense + fusion.weights.lexical)
    dense = share * parts["dense"]
    return {"dense": dense, "words": evidence - dense}


def uncertainty(scores: NDArray[np.float32]) -> float:
    """How uncertain a dense ranking is, from its cosines float32 [c]: 2 (1 - top) exp(-(top - tenth) / 0.15), in [0, 4].

    Small if the first hit is near the query and well ahead of the tenth; 1 without hits, so that terms decide.
    """
    if not len(scores):
        return 1.0
    top, tenth = float(scores[0]), float(scores[min(HEAD, len(scores)) - 1])
    return 2.0 * max(1.0 - top, 0.0) * float(np.exp(-(top - tenth) / SPREAD))


class _Candidates:
    """One retriever's view of all documents that either retriever found."""

    def __init__(
        self,
        scores: NDArray[np.float32],  # float32 [c], of the retriever's candidates, best first
        places: NDArray[np.int64],  # int64 [c], position of each candidate in `rows`
        rows: NDArray[np.int64],  # int64 [m], every document, ascending
        score: Scorer | None,  # computes true scores of rows that are not candidates; None: unknown
    ) -> None:
        self._places = places
        # Backwards, so that a repeated row counts at its best place.
        self.scores = np.full(len(rows), np.nan)
        self.scores[places[::-1]] = scores[::-1]
        self._lowest = float(scores[-1]) if len(scores) else 0.0
        self._rows, self._score = rows, score

    def complete(self) -> None:
        """Computes the scores of rows that are not candidates."""
        if self._score is None:
            return
        places = np.flatnonzero(np.isnan(self.scores))
        for start in range(0, len(places), SCORED_AT_ONCE):  # all vectors at once could be gigabytes
            block = places[start : start + SCORED_AT_ONCE]
            self.scores[block] = self._score(self._rows[block])

    def filled(self) -> Floats:
        """Scores [m]; the lowest candidate's score replaces unknown ones."""
        return np.where(np.isnan(self.scores), self._lowest, self.scores)

    def reciprocal_ranks(self, k: int) -> Floats:
        """1 / (k + rank) [m], 0 for documents that are not candidates."""
        shares = np.zeros(len(self.scores))
        shares[self._places[::-1]] = 1.0 / (k + np.arange(len(self._places), 0, -1))
        return shares
