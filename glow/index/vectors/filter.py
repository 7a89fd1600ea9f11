"""Filtered vector search: compare with each allowed vector, or widen an approximate search.

An approximate search visits allowed and other vectors alike, and must widen if few are allowed. Comparing with
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

faiss: Any = _faiss  # its type stubs are incomplete

STEP_VECTORS = 64
"""A step of a graph search takes as long as about this many comparisons: 35 to 96, more in larger graphs."""

# For compressed vectors, in nanoseconds, timed over 200,000; docs/results/scale.md has filters at ten million.
SKIPPED_NS, COMPARED_NS, CODE_NS = 1.5, 25.0, 16.0
"""Skipping a row that is not allowed, comparing with an 8-bit vector, reading a code in a list."""


def require_fit(allowed: RowMask, count: int, device: str) -> None:
    """Refuses an unusable mask.

    Args:
        allowed: the mask.
        count: number of vectors of the index.
        device: of the vectors.

    Raises:
        MismatchError: if the mask has another number of rows.
        QueryError: if the index is on a GPU, where FAISS has no filters.
    """
    if len(allowed) != count:
        raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {count} vectors")
    if device != "cpu":
        raise QueryError(
            "an index on a GPU cannot be filtered; remove the filter, or serve with --device cpu"
        )


def should_scan(allowed: int, count: int, ef: int) -> bool:
    """Whether comparing with every allowed vector costs no more than an equivalent graph search.

    Args:
        allowed: number of allowed vectors, >= 1.
        count: number of all vectors.
        ef: candidates of a search without a filter.
    """
    return allowed <= STEP_VECTORS * widened_ef(ef, allowed, count)


def should_scan_codes(allowed: int, count: int, probes: int, lists: int) -> bool:
    """The same for compressed vectors: compares every allowed 8-bit vector with the codes of an equivalent number of lists.

    Args:
        allowed, count: as for `should_scan`.
        probes: number of lists in a search without a filter.
        lists: number of all lists.
    """
    looked_at = count * min(widened_probes(probes, allowed, count), lists) / lists
    return SKIPPED_NS * count + COMPARED_NS * allowed <= CODE_NS * looked_at


def widened_ef(ef: int, allowed: int, count: int) -> int:
    """Candidates of a graph search that finds as much among the allowed vectors as `ef` finds among all."""
    return ceil(ef * sqrt(count / allowed))


def widened_probes(probes: int, allowed: int, count: int) -> int:
    """Number of lists to search: in proportion, so that as many allowed vectors are compared as without a filter."""
    return ceil(probes * count / allowed)


def rows_of(allowed: RowMask) -> Any:
    """FAISS parameters of a search that only visits the allowed uncompressed vectors."""
    return faiss.SearchParameters(sel=faiss.IDSelectorArray(allowed.rows))


def bitmap_of(allowed: RowMask) -> Any:
    """A FAISS selector that checks each vector against the mask."""
    return faiss.IDSelectorBitmap(allowed.packed)
