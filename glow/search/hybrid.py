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
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from glow.options import StrictModel
from glow.search.fusion import RRF_K
from glow.search.ranking import Ranking, best

__all__ = [
    "DEFAULT_FUSION", "FUSION_FILE", "HEAD", "Fused", "Fusion", "FusionWeights", "Scorer", "fuse_rankings",
    "uncertainty",
]  # fmt: skip

FUSION_FILE = "fusion.json"
MAX_K = 10_000
HEAD = 10
"""Dense hits whose spread tells how sure the ranking is."""
SPREAD = 0.15
Floats = NDArray[np.float64]
Scorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Rows int64 [x] -> their true scores float32 [x] for the query at hand."""


class FusionWeights(StrictModel):
    """How much each part counts: both finite and >= 0, one of them above 0; only their ratio matters."""

    dense: float = Field(ge=0.0, le=1e6)
    lexical: float = Field(ge=0.0, le=1e6)

    @model_validator(mode="after")
    def _check(self) -> "FusionWeights":
        if self.dense + self.lexical == 0.0:
            raise ValueError("one of the weights must be above 0")
        return self


class Fusion(StrictModel):
    """How two rankings become one; `fusion.json` of an index.

    Attributes:
        method: `convex` (normalised scores) or `rrf` (reciprocal ranks).
        k: the constant of `rrf` that flattens the head, 0 to 10,000.
        weights: of the two parts, under either method.
    """

    method: Literal["convex", "rrf"] = "convex"
    k: int = Field(default=RRF_K, ge=0, le=MAX_K)
    weights: FusionWeights = FusionWeights(dense=0.55, lexical=0.45)


DEFAULT_FUSION = Fusion()
"""Where an index brings none of its own; chosen in docs/decisions/0006."""


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """A fused ranking of every document that either part found.

    Attributes:
        scores: float32 [m], descending.
        rows: int64 [m], each once.
        parts: `dense` and `lexical` -> float32 [m], the document's score in that part; NaN where not known.
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
    """
    parts = {"dense": _Candidates(*dense, score_dense), "lexical": _Candidates(*lexical, score_lexical)}
    rows = np.unique(np.concatenate([part.rows for part in parts.values()]))
    known = {name: part.scores_of(rows) for name, part in parts.items()}
    weights = {"dense": fusion.weights.dense, "lexical": fusion.weights.lexical}
    total = sum(weights.values())
    scale = {"dense": 1.0, "lexical": 1.0}
    if fusion.method == "convex":
        largest = np.nanmax(known["lexical"], initial=0.0) if lexical_scale is None else lexical_scale
        scale["lexical"] = uncertainty(dense[0]) / (
            float(largest) or 1.0
        )  # 0 where no word of the query is known
    fused = np.zeros(len(rows), np.float64)
    for name, part in parts.items():
        share = (
            _reciprocal_ranks(part, rows, fusion.k) if fusion.method == "rrf" else part.filled(known[name])
        )
        fused += weights[name] / total * scale[name] * share
    scores, ranked = best(fused.astype(np.float32), rows, max(len(rows), 1), order)
    places = np.searchsorted(rows, ranked)
    return Fused(scores, ranked, {name: values[places].astype(np.float32) for name, values in known.items()})


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
    """The candidates of one part, each row once, sorted by row."""

    def __init__(self, scores: NDArray[np.float32], rows: NDArray[np.int64], score: Scorer | None) -> None:
        self.rows, first = np.unique(rows, return_index=True)
        self.ranks = first + 1  # a row that comes again counts at its best place, and the others keep theirs
        self.scores = scores[first].astype(np.float64)
        self._score = score

    def places(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which of some sorted rows are candidates, and where those are."""
        held = np.isin(rows, self.rows, assume_unique=True)
        return held, np.searchsorted(self.rows, rows[held])

    def scores_of(self, rows: NDArray[np.int64]) -> Floats:
        """Scores of sorted rows; NaN where they cannot be known."""
        held, places = self.places(rows)
        scores = np.full(len(rows), np.nan)
        scores[held] = self.scores[places]
        if self._score is not None and not held.all():
            scores[~held] = self._score(rows[~held])
        return scores

    def filled(self, scores: Floats) -> Floats:
        """Scores with the lowest candidate's in place of unknown ones."""
        lowest = self.scores.min() if len(self.scores) else 0.0
        return np.where(np.isnan(scores), lowest, scores)


def _reciprocal_ranks(part: _Candidates, rows: NDArray[np.int64], k: int) -> Floats:
    held, places = part.places(rows)
    shares = np.zeros(len(rows))
    shares[held] = 1.0 / (k + part.ranks[places])
    return shares
