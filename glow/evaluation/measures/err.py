"""Expected reciprocal rank: where a user stops who reads down the list and is satisfied by good documents.

Chapelle, Metzler, Zhang and Grinspan, CIKM 2009 (https://doi.org/10.1145/1645953.1646033). A document of
grade g satisfies with probability R(g) = (2^g - 1) / 2^g_max, and

    ERR@k = sum over r = 1 … k of 1/r · R(g_r) · product over i < r of (1 - R(g_i)).

g_max is the highest grade of the scale, not of the query: with another g_max the same run has another ERR. The value
is not divided by the best that is possible: with grades 0 and 1 and g_max 4, twenty relevant hits give ERR@20 = .176.
"""

from collections.abc import Mapping, Sequence

from glow.errors import InputError

__all__ = ["ERR_MAX_GRADE", "err"]

ERR_MAX_GRADE = 4
"""g_max of gdeval.pl, the program that judged the TREC Web tracks, so of the figures published there."""


def err(ranking: Sequence[str], grades: Mapping[str, int], k: int, g_max: int = ERR_MAX_GRADE) -> float:
    """ERR@k of one query.

    Args:
        ranking: document ids, best first; a document that comes again satisfies nobody at its later place.
        grades: document id -> grade; unjudged documents and negative grades satisfy nobody.
        k: hits that count, >= 1.
        g_max: highest grade of the scale, >= 1.

    Returns:
        In [0, 1); 0 where the first k hits hold no document with a grade above 0.

    Raises:
        InputError: a grade is above g_max.
        ValueError: k or g_max is below 1.
    """
    if k < 1 or g_max < 1:
        raise ValueError(f"k and g_max must be at least 1, found {k} and {g_max}")
    highest = max(grades.values(), default=0)
    if highest > g_max:
        raise InputError(
            f"ERR@{k} expects grades up to {g_max}, and there is a grade {highest}: ask for ERR(g_max={highest})@{k}"
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
