"""Measures of one query by graded gains: nDCG, NCG and expected reciprocal rank.

**nDCG** is the discounted gain of the first k hits relative to the best possible ranking.

Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques", with grades as gains and log2(rank + 1) as
discount, as in `ir-measures`; implemented here because building an index must not need that package.

**NCG** is the gain of the first k hits, in any order, relative to the best possible gain.

GLOW section 4.2.1, Eq. 11-12 (https://arxiv.org/abs/2007.05186): NCG = CG / iCG, where CG is the sum of the grades
of the first k hits and iCG that of the k best judged documents. A later ranking stage sets the order, so only the set
of documents that the first stage passes on counts.

**ERR** is the expected reciprocal rank at which a user who reads down the list is satisfied.

Chapelle, Metzler, Zhang and Grinspan, CIKM 2009 (https://doi.org/10.1145/1645953.1646033). A document of
grade g satisfies with probability R(g) = (2^g - 1) / 2^g_max, and

    ERR@k = sum over r = 1 … k of 1/r · R(g_r) · product over i < r of (1 - R(g_i)).

g_max is the highest grade of the scale, not of the query; ERR depends on it. The value is not divided by the best
possible one: with grades 0 and 1 and g_max 4, twenty relevant hits give ERR@20 = .176.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from glow.errors import InputError

__all__ = ["ERR_MAX_GRADE", "dcg", "err", "ncg", "ndcg"]

ERR_MAX_GRADE = 4
"""g_max of gdeval.pl, the program that measured the TREC Web tracks and their published figures."""


def err(ranking: Sequence[str], grades: Mapping[str, int], k: int, g_max: int = ERR_MAX_GRADE) -> float:
    """ERR@k of one query.

    Args:
        ranking: document ids, best first; a repeated document counts only at its first rank.
        grades: document id -> grade; unjudged documents and negative grades count as 0.
        k: cutoff, >= 1.
        g_max: highest grade of the scale, >= 1.

    Returns:
        In [0, 1); 0 if none of the first k hits has a grade above 0.

    Raises:
        InputError: if a grade is above g_max.
        ValueError: if k or g_max is below 1.
    """
    if k < 1 or g_max < 1:
        raise ValueError(f"k and g_max must be at least 1, found {k} and {g_max}")
    highest = max(grades.values(), default=0)
    if highest > g_max:
        raise InputError(
            f"ERR@{k} expects grades up to {g_max}, found grade {highest}: use ERR(g_max={highest})@{k}"
        )
    value, still_reading = 0.0, 1.0
    seen: set[str] = set()
    for rank, document in enumerate(ranking[:k], start=1):
        grade = 0 if document in seen else max(grades.get(document, 0), 0)
        seen.add(document)
        satisfied = (2**grade - 1) / 2**g_max
        value += still_reading * satisfied / rank
        still_reading *= 1.0 - satisfied
    return value


def ncg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """NCG@k of one query.

    Args:
        ranking: document ids, best first; a repeated document counts once.
        grades: document id -> grade; unjudged documents and negative grades gain 0.
        k: cutoff, >= 1.

    Returns:
        In [0, 1]; 0 if no document has a grade above 0 (as in `ir-measures` for nDCG).

    Raises:
        ValueError: if k is below 1.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}")
    ideal = sum(sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k])
    if ideal == 0:
        return 0.0
    return sum(max(grades.get(document, 0), 0) for document in set(ranking[:k])) / ideal


def dcg(gains: Sequence[int]) -> float:
    """Sum of the gains, each divided by the binary logarithm of its rank + 1."""
    return float(sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain))


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """nDCG@k in [0, 1]; 0 if no document is relevant.

    Args:
        ranking: document ids, best first.
        grades: document id -> grade; those below 0 count as 0.
        k: cutoff, >= 1.
    """
    ideal = dcg(sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:k])
    return dcg([max(grades.get(document, 0), 0) for document in ranking[:k]]) / ideal if ideal else 0.0
