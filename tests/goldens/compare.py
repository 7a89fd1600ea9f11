"""Differences between what was recorded and what is found, each with its place."""

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Tolerance", "differences", "exact", "nearly"]

Json = dict[str, Any]
Tolerance = Callable[[str], float]
SHOWN_CHARS = 300
NEAR = 1e-4
CODED = ("learned-sparse ", "join", "late")
"""Answers by numbers that are kept in few bits: if one falls on the other side of a step, a score moves by that step."""


def exact(place: str) -> float:
    """Every digit counts, and the order of members."""
    return 0.0


def nearly(place: str) -> float:
    """How far apart numbers may be that other machines compute."""
    corpus, _, section, *name = place.split("/")
    if corpus != "everything" or section != "answers":
        return NEAR
    return 200 * NEAR if name[0].startswith(CODED) else 10 * NEAR


def differences(wanted: Any, found: Any, tolerance: Tolerance, place: str) -> Iterator[str]:
    """One line for each difference.

    Args:
        wanted: JSON as it was recorded.
        found: JSON as it is.
        tolerance: place -> how far numbers with a fraction may be apart there.
        place: what is compared, as corpus/state/section/name and so on.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        compare = _hits if place.endswith("/hits") and tolerance is not exact else _members
        yield from compare(wanted, found, tolerance, place)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, pair in enumerate(zip(wanted, found, strict=True)):
            yield from differences(*pair, tolerance, f"{place}/{number}")
    elif isinstance(wanted, float) and isinstance(found, float):
        if abs(wanted - found) > tolerance(place):
            yield f"{place}: {wanted} became {found}"
    elif type(wanted) is not type(found) or wanted != found:
        yield f"{place}: {wanted!r:.{SHOWN_CHARS}} became {found!r:.{SHOWN_CHARS}}"


def _members(wanted: Json, found: Json, tolerance: Tolerance, place: str) -> Iterator[str]:
    for name in [*wanted, *(name for name in found if name not in wanted)]:
        here = f"{place}/{name}"
        if name in found and name in wanted:
            yield from differences(wanted[name], found[name], tolerance, here)
        else:
            yield f"{here}: {'is gone' if name in wanted else 'is new'}"
    if tolerance is exact and wanted.keys() == found.keys() and list(wanted) != list(found):
        yield f"{place}: members in another order"


def _hits(wanted: Json, found: Json, tolerance: Tolerance, place: str) -> Iterator[str]:
    """Ids and scores, best first; those whose scores are nearly the same may change places, also across the end."""
    if len(wanted) != len(found):
        yield f"{place}: {list(wanted)} became {list(found)}"
        return
    last = min(wanted.values(), default=0.0)
    for rank, (old, new) in enumerate(zip(wanted, found, strict=True), 1):
        if abs(wanted[old] - found[new]) > tolerance(place):
            yield f"{place}: at rank {rank}, {old} with {wanted[old]} became {new} with {found[new]}"
        elif old != new and abs(wanted.get(new, last) - wanted[old]) > tolerance(place):
            yield f"{place}: at rank {rank}, {old} became {new}, and their scores differ"
