"""nDCG: how much of the gain of the best possible ranking a ranking has in its first places.

Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques", with grades as gains and log2(rank + 1) as
discount, as `ir-measures` has it; written out because building an index must not need that package.
"""

from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["dcg", "ndcg"]


def dcg(gains: Sequence[int]) -> float:
    """Gains divided by the binary logarithm of their rank + 1, added up."""
    return float(sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain))


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """nDCG@k in [0, 1]; 0 where no document is relevant.

    Args:
        ranking: document ids, best first.
        grades: document id -> grade; those below 0 count as 0.
        k: places that count, >= 1.
    """
    ideal = dcg(sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:k])
    return dcg([max(grades.get(document, 0), 0) for document in ranking[:k]]) / ideal if ideal else 0.0
