"""How to search vectors of which only some are allowed: compare with each of those, or widen an approximate search.

An approximate search meets vectors whether they are allowed or not, and must look further the fewer are. Comparing with
every allowed vector is exact, and its cost falls with their number. docs/results/serving.md has the measurements.
"""

from math import ceil, sqrt
from typing import Any

import faiss as _faiss

from glow.errors import MismatchError, QueryError
from glow.index.row_mask import RowMask

__all__ = [
    "bitmap_of",
    "require_fit",
    "rows_of",
    "should_scan",
    "should_scan_codes",
    "widened_ef",
    "widened_probes",
]

faiss: Any = _faiss  # its type stubs lack much of what it has

STEP_VECTORS = 64
"""A step of a graph search takes as long as comparing with about so many vectors: 35 to 96, more in larger graphs."""

# Of compressed vectors, in nanoseconds, timed over 200,000; docs/results/scale.md has what filters take at ten million.
SKIPPED_NS, COMPARED_NS, CODE_NS = 1.5, 25.0, 16.0
"""Passing a row that is not allowed, comparing with a vector in 8 bits, looking at a code in a list."""


def require_fit(allowed: RowMask, count: int, device: str) -> None:
    """Refuses a mask that cannot be used.

    Args:
        allowed: the mask.
        count: vectors of the index.
        device: where they are.

    Raises:
        MismatchError: if the mask has another number of rows.
        QueryError: if the index is on a GPU, where FAISS knows no filters.
    """
    if len(allowed) != count:
        raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {count} vectors")
    if device != "cpu":
        raise QueryError(
            "an index on a GPU cannot be filtered; leave the filter out, or serve with --device cpu"
        )


def should_scan(allowed: int, count: int, ef: int) -> bool:
    """Whether comparing with every allowed vector costs no more than the graph search that finds as much.

    Args:
        allowed: vectors that may be found, >= 1.
        count: vectors.
        ef: candidates that a search of all vectors would keep.
    """
    return allowed <= STEP_VECTORS * widened_ef(ef, allowed, count)


def should_scan_codes(allowed: int, count: int, probes: int, lists: int) -> bool:
    """The same for compressed vectors: every allowed one in 8 bits, or the codes of so many lists as find as much.

    Args:
        allowed, count: as for `should_scan`.
        probes: lists that a search of all vectors would look into.
        lists: all there are.
    """
    looked_at = count * min(widened_probes(probes, allowed, count), lists) / lists
    return SKIPPED_NS * count + COMPARED_NS * allowed <= CODE_NS * looked_at


def widened_ef(ef: int, allowed: int, count: int) -> int:
    """Candidates that a graph search keeps to find as much among the allowed as `ef` finds among all."""
    return ceil(ef * sqrt(count / allowed))


def widened_probes(probes: int, allowed: int, count: int) -> int:
    """Lists to look into: in proportion, so that as many allowed vectors are compared as without a filter."""
    return ceil(probes * count / allowed)


def rows_of(allowed: RowMask) -> Any:
    """FAISS parameters of a search of plain vectors that touches the allowed ones alone."""
    return faiss.SearchParameters(sel=faiss.IDSelectorArray(allowed.rows))


def bitmap_of(allowed: RowMask) -> Any:
    """A FAISS selector that asks for each vector whether it is allowed."""
    return faiss.IDSelectorBitmap(allowed.packed)
