"""The probability that users examine a rank, measured from documents that one query showed at several ranks.

Position-based model: users click a hit if they examine it and find it good; only the examination depends on the rank.
If a query showed a document at ranks k and k', the ratio of its click rates is the ratio of the ranks' propensities
(intervention harvesting: Agarwal et al., WSDM 2019). No experiment is needed: index versions, retrievers and fusions
rank the same documents differently.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow_index_builder.clicks.sessions import Impression

__all__ = ["Propensities", "count_at_ranks", "measure_propensities"]

Counts = dict[tuple[str, str], dict[int, tuple[int, int]]]
"""(query, id) -> rank -> (times shown, times clicked)."""
PRIOR_CLICKS = 20.0
MOST_ROUNDS, TOLERANCE = 50, 1e-6


@dataclass(frozen=True, slots=True)
class Propensities:
    """Examination probabilities relative to rank 1.

    Attributes:
        values: of ranks 1 to n, in (0, 1]; deeper ranks have the last value.
        clicks: the clicks behind each value: by rank, on documents shown at several ranks.
    """

    values: NDArray[np.float64]
    clicks: NDArray[np.int64]

    def at(self, rank: int) -> float:
        """The value of a rank, counted from 1."""
        return float(self.values[min(rank, len(self.values)) - 1])


def count_at_ranks(searches: Sequence[Impression], most_rank: int) -> Counts:
    """Counts how often each document was shown and clicked at each rank, by query; dislikes do not count as clicks."""
    shown: Counter[tuple[str, str, int]] = Counter()
    clicked: Counter[tuple[str, str, int]] = Counter()
    for search in searches:
        for rank, identifier in enumerate(search.hits, start=search.first):
            if rank <= most_rank:
                shown[search.query, identifier, rank] += 1
        for identifier, click in search.clicks.items():
            if click.rank <= most_rank and not click.is_dislike:
                clicked[search.query, identifier, click.rank] += 1
    counts: Counts = defaultdict(dict)
    for (query, identifier, rank), times in shown.items():
        counts[query, identifier][rank] = (times, clicked[query, identifier, rank])
    return dict(counts)


def measure_propensities(counts: Counts, most_rank: int) -> Propensities:
    """Fits the position-based model to documents that one query showed at several ranks.

    A document's clicks are distributed over ranks in proportion to n(k) * p(k); n(k) counts its impressions at rank k.
    Its quality cancels out. Newton's method maximizes that multinomial likelihood. The prior has `PRIOR_CLICKS` clicks
    for each rank k except the first, divided between ranks 1 and k as p(k) = 1 / k predicts.

    Args:
        counts: from `count_at_ranks`.
        most_rank: deepest rank to fit, >= 2.
    """
    several = [
        ranks for ranks in counts.values() if len(ranks) > 1 and any(clicked for _, clicked in ranks.values())
    ]
    shown = np.zeros((len(several) + most_rank - 1, most_rank))
    clicked = np.zeros_like(shown)
    for row, ranks in enumerate(several):
        for rank, (times, clicks) in ranks.items():
            shown[row, rank - 1], clicked[row, rank - 1] = times, clicks
    for rank in range(1, most_rank):
        row = len(several) + rank - 1
        shown[row, [0, rank]] = 1.0
        clicked[row, [0, rank]] = np.array([rank + 1, 1]) * PRIOR_CLICKS / (rank + 2)
    clicks_at, clicks_of = clicked.sum(0), clicked.sum(1)
    logs = -np.log(np.arange(1, most_rank + 1))
    for _ in range(MOST_ROUNDS):
        shares = shown * np.exp(logs)
        shares /= shares.sum(1, keepdims=True)
        slope = clicks_at - clicks_of @ shares
        curve = np.diag(clicks_of @ shares) - shares.T @ (clicks_of[:, None] * shares)
        step = np.linalg.solve(curve[1:, 1:], slope[1:])  # rank 1 is what the others are relative to
        logs[1:] += np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < TOLERANCE:
            break
    counted = clicked[: len(several)].sum(0).astype(np.int64)
    return Propensities(np.clip(np.exp(logs), 1e-3, 1.0), counted)
