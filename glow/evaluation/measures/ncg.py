"""Normalised cumulative gain: how much of the best possible gain the first k hits hold, wherever they stand.

GLOW section 4.2.1, Eq. 11-12 (https://arxiv.org/abs/2007.05186): NCG = CG / iCG, where CG is the sum of the grades
of the first k hits and iCG that of the k best judged documents. A later ranking stage sets the order, so the first
stage is asked only what it lets through.
"""

from collections.abc import Mapping, Sequence

__all__ = ["ncg"]


def ncg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """NCG@k of one query.

    Args:
        ranking: document ids, best first; a document that comes again counts once.
        grades: document id -> grade; unjudged documents and negative grades gain 0.
        k: hits that count, >= 1.

    Returns:
        In [0, 1]; 0 where no document has a grade above 0 (as `ir-measures` does for nDCG).

    Raises:
        ValueError: k is below 1.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}")
    ideal = sum(sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k])
    if ideal == 0:
        return 0.0
    return sum(max(grades.get(document, 0), 0) for document in set(ranking[:k])) / ideal
