"""How likely a rank is looked at, measured from documents that the same query showed at several ranks.

The position-based model: a hit is clicked if it is looked at and found good, and only looking depends on the rank. Of a document
that stood at ranks k and k' for one query, the ratio of its click rates is then the ratio of the ranks' propensities, whatever
it is worth (intervention harvesting: Agarwal et al., WSDM 2019, section 4). Versions, retrievers and fusions that rank differently
give such pairs without an experiment.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow_index_builder.clicks.sessions import Shown

__all__ = ["Propensities", "count_at_ranks", "measure_propensities"]

Counts = dict[tuple[str, str], dict[int, tuple[int, int]]]
"""(query, id) -> rank -> (times shown, times clicked)."""
PRIOR_DEVIATION = 0.5
"""Standard deviation of a log propensity around that of 1 / rank, before anything is measured."""


@dataclass(frozen=True, slots=True)
class Propensities:
    """Chances of being looked at, relative to rank 1.

    Attributes:
        values: of ranks 1 to n, in (0, 1]; deeper ranks have the last one.
        clicks: clicks on documents that stood at several ranks, by rank: what each value rests on.
    """

    values: NDArray[np.float64]
    clicks: NDArray[np.int64]

    def at(self, rank: int) -> float:
        """Of a rank, from 1."""
        return float(self.values[min(rank, len(self.values)) - 1])


def count_at_ranks(searches: Sequence[Shown], most_rank: int) -> Counts:
    """Counts how often each document was shown and clicked at each rank, by query; dislikes are no clicks."""
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
    """Fits the ratios of click rates between ranks, by weighted least squares on their logarithms.

    A pair of ranks weighs as much as its clicks let its ratio be known; 1 / rank is the prior, so that ranks with few clicks
    stay near it.

    Args:
        counts: of `count_at_ranks`.
        most_rank: how deep, >= 2.
    """
    rates = np.zeros(
        (most_rank, most_rank)
    )  # [k, l]: click rate at k of documents that also stood at l, summed
    noise = np.zeros((most_rank, most_rank))
    clicks = np.zeros(most_rank, np.int64)
    for ranks in counts.values():
        if len(ranks) < 2:
            continue
        for rank, (times, clicked) in ranks.items():
            clicks[rank - 1] += clicked
            others = [other - 1 for other in ranks if other != rank]
            rates[rank - 1, others] += clicked / times
            noise[rank - 1, others] += clicked / times**2
    prior = -np.log(np.arange(1, most_rank + 1))
    rows, targets, weights = [], [], []
    for one in range(most_rank):
        for other in range(one + 1, most_rank):
            if rates[one, other] > 0 and rates[other, one] > 0:
                row = np.zeros(most_rank)
                row[one], row[other] = 1.0, -1.0
                rows.append(row)
                targets.append(np.log(rates[one, other] / rates[other, one]))
                variance = (
                    noise[one, other] / rates[one, other] ** 2 + noise[other, one] / rates[other, one] ** 2
                )
                weights.append(1.0 / variance)
    # A pair's own counts stand in several ratios, so each ratio weighs less than its variance alone would say.
    scale = 1.0 / max(most_rank - 1, 1)
    system = np.diag(np.full(most_rank, 1.0 / PRIOR_DEVIATION**2))
    right = prior / PRIOR_DEVIATION**2
    system[0, 0] += 1e9  # rank 1 is what others are relative to
    for row, target, weight in zip(rows, targets, weights, strict=True):
        system += scale * weight * np.outer(row, row)
        right += scale * weight * target * row
    values = np.exp(np.linalg.solve(system, right))
    return Propensities(np.clip(values / values[0], 1e-3, 1.0), clicks)
