"""Hybrid search: a dense and a lexical ranking of one query, fused.

`rrf` adds up reciprocal ranks (`glow.search.fusion`). `convex` adds up scores on one scale, which keeps how far a hit is
ahead of the next (Bruch, Gai and Ingber 2023, https://arxiv.org/abs/2210.11934). Departs from them in the scale: the cosine stays as
it is, and the lexical score counts the less the surer the dense ranking is of its first hits, because words help most
where vectors leave the question open, and harm where they settle it. A document that only one ranking holds gets its true
score from the other part where that can be worked out. docs/decisions/0006 has what was measured.

    c   candidates of one ranking       m   documents that either ranking holds
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.index import Fusion, Ranking, best

__all__ = ["HEAD", "Fused", "Scorer", "fuse_rankings", "uncertainty"]

HEAD = 10
"""Dense hits whose spread tells how sure the ranking is."""
SPREAD = 0.15
Floats = NDArray[np.float64]
LATE_SHARE = 0.65
"""Of late interaction in what vectors say of a document (docs/results/late-interaction.md)."""
LATE_WORDS = 0.25
"""What words count with late interaction, which sees them too, over what they count without."""
Scorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Rows int64 [x] -> their true scores float32 [x] for the query at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """A fused ranking of every document that either part found.

    Attributes:
        scores: float32 [m], descending.
        rows: int64 [m], each once.
        parts: `dense` and `lexical` -> float32 [m], the document's score in that part; NaN where not known. `late`, if every document
            has that score.
    """

    scores: NDArray[np.float32]
    rows: NDArray[np.int64]
    parts: Mapping[str, NDArray[np.float32]]


def fuse_rankings(
    fusion: Fusion,
    dense: Ranking,
    lexical: Ranking,
    order: NDArray[np.uint32] | None = None,
    score_dense: Scorer | None = None,
    score_lexical: Scorer | None = None,
    lexical_scale: float | None = None,
    head: NDArray[np.float32] | None = None,
    score_late: Callable[[NDArray[np.int64]], NDArray[np.float32] | None] | None = None,
) -> Fused:
    """Fuses the candidates of both parts.

    The result depends on the candidates alone, so every page of it is a part of one ranking.

    Args:
        fusion: method and weights.
        dense, lexical: candidates, best first; scores finite. A row that comes again counts at its best place.
        order: uint32 [n], each document's place among equals; None: its row.
        score_dense, score_lexical: true scores of rows that only the other part found; None: there is no knowing,
            and they count as the lowest candidate of that part, which they cannot exceed.
        lexical_scale: the largest impact of any word (`ImpactIndex.largest`); None: the highest lexical score here.
        head: float32 [h], cosines of the dense ranking of all documents, best first, whatever a filter allows: what
            `uncertainty` reads. None: the candidates are of all documents, so theirs.
        score_late: scores of rows by late interaction, which makes up `LATE_SHARE` of the dense part under `convex`, or None if there is
            no time for it. None: there is none.
    """
    found = np.concatenate([dense[1], lexical[1]])
    rows, places = np.unique(found, return_inverse=True)
    parts = {
        "dense": _Candidates(dense[0], places[: len(dense[1])], rows, score_dense),
        "lexical": _Candidates(lexical[0], places[len(dense[1]) :], rows, score_lexical),
    }
    weights = {"dense": fusion.weights.dense, "lexical": fusion.weights.lexical}
    total = sum(weights.values())
    scale = {"dense": 1.0, "lexical": 1.0}
    if fusion.method == "convex":
        largest = np.nanmax(parts["lexical"].scores, initial=0.0) if lexical_scale is None else lexical_scale
        openness = uncertainty(dense[0] if head is None else head)
        scale["lexical"] = openness / (float(largest) or 1.0)  # 0 where no word of the query is known
    late = score_late(rows) if score_late is not None and fusion.method == "convex" else None
    fused = np.zeros(len(rows), np.float64)
    for name, part in parts.items():
        share = part.reciprocal_ranks(fusion.k) if fusion.method == "rrf" else part.filled()
        if late is not None:
            share = (1 - LATE_SHARE) * share + LATE_SHARE * late if name == "dense" else LATE_WORDS * share
        fused += weights[name] / total * scale[name] * share
    scores, ranked = best(fused.astype(np.float32), rows, max(len(rows), 1), order)
    places = np.searchsorted(rows, ranked)
    told = {name: part.scores[places].astype(np.float32) for name, part in parts.items()}
    return Fused(scores, ranked, told if late is None else {**told, "late": late[places]})


def uncertainty(scores: NDArray[np.float32]) -> float:
    """How open the dense ranking leaves the question: 2 (1 - top) exp(-(top - tenth) / 0.15), in [0, 4].

    Small where the first hit is near the query and stands out from the tenth.

    Args:
        scores: float32 [c], cosines, descending; without any, the words decide: 1.
    """
    if not len(scores):
        return 1.0
    top, tenth = float(scores[0]), float(scores[min(HEAD, len(scores)) - 1])
    return 2.0 * max(1.0 - top, 0.0) * float(np.exp(-(top - tenth) / SPREAD))


class _Candidates:
    """One part's view of all documents that either part found.

    Args:
        scores: float32 [c] of the part's candidates, best first.
        places: int64 [c], where each stands in `rows`.
        rows: int64 [m], every document, ascending.
        score: tells true scores of rows that are no candidates; None: there is no knowing.

    Attributes:
        scores: float64 [m]; NaN where not known.
    """

    def __init__(
        self,
        scores: NDArray[np.float32],
        places: NDArray[np.int64],
        rows: NDArray[np.int64],
        score: Scorer | None,
    ) -> None:
        self._places = places
        # From the last to the first: a row that comes again counts at its best place.
        self.scores = np.full(len(rows), np.nan)
        self.scores[places[::-1]] = scores[::-1]
        self._lowest = float(scores[-1]) if len(scores) else 0.0
        if score is not None:
            missing = np.isnan(self.scores)
            if missing.any():
                self.scores[missing] = score(rows[missing])

    def filled(self) -> Floats:
        """Scores [m] with the lowest candidate's in place of unknown ones."""
        return np.where(np.isnan(self.scores), self._lowest, self.scores)

    def reciprocal_ranks(self, k: int) -> Floats:
        """1 / (k + rank) [m], 0 for what is no candidate."""
        shares = np.zeros(len(self.scores))
        shares[self._places[::-1]] = 1.0 / (k + np.arange(len(self._places), 0, -1))
        return shares
