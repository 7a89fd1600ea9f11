"""`delta/` of a version: documents added, replaced and deleted since its base, as a small index of its own.

The other files of such a version are those of its base. `delta/` holds `delta.json`, `tombstones.npy` (uint32 [t], ascending:
deleted rows of the base), `order.npy` (uint32 [N + M]: the rank of each document's id, over base and delta), and a
segment: the files of every component of the base, in the same formats. Term statistics and model are the base's.

N, M   documents of base and delta      t   tombstones
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import FormatError, MismatchError
from glow.index.segment import DELTA
from glow.options import StrictModel
from glow.storage import map_array, read_header

HEADER_FILE, TOMBSTONES_FILE, ORDER_FILE = "delta.json", "tombstones.npy", "order.npy"
"""Files of a delta: sizes, deleted rows of the base (uint32 [t]), and rank of each document's id (uint32 [N + M])."""
DELTA_HEADER = f"{DELTA}{HEADER_FILE}"
"""Sizes of the delta; only versions with a delta have it."""
Count = Annotated[int, Field(ge=0, lt=2**32)]


class DeltaHeader(StrictModel):
    """`delta.json`."""

    format: Literal[1] = 1  # format version
    # base_documents, base_vectors: rows of the base: documents, and passages if it has them
    base_documents: Count
    base_vectors: Count
    documents: Count  # documents, vectors: the same for the delta
    vectors: Count
    tombstones: Count  # number of deleted rows of the base


@dataclass(frozen=True, slots=True, eq=False)
class DeltaRows:
    """Row numbers of a delta, besides its components."""

    header: DeltaHeader  # their sizes
    tombstones: NDArray[np.int64]  # deleted rows of the base, int64 [t], ascending
    # uint32 [N + M], the rank of each document's id among all ids of base and delta
    order: NDArray[np.uint32]

    @classmethod
    def open(
        cls,
        version: Path,
        files: Collection[str],  # its files with verified checksums, by their path in it
    ) -> "DeltaRows":
        """Reads the files in `delta/` that belong to no component."""
        header, there = read_delta_header(version), in_delta(files)
        for name in (HEADER_FILE, TOMBSTONES_FILE, ORDER_FILE):
            if name not in there:
                raise MismatchError(f"the manifest lacks {DELTA}{name}; roll back to an older version")
        return cls(header, read_tombstones(version, header), read_order(version, header))


class SortedIds(Protocol):
    """Documents whose ids are sorted; `DocumentStore` describes it."""

    def rows_before(self, ids: Sequence[str]) -> list[int | None]: ...


def in_delta(files: Collection[str]) -> frozenset[str]:
    """The files of a version in its delta, by their paths in `delta/`."""
    return frozenset(name.removeprefix(DELTA) for name in files if name.startswith(DELTA))


def read_delta_header(version: Path) -> DeltaHeader:
    """Reads `delta.json` from a version's directory."""
    return read_header(
        version / DELTA_HEADER, DeltaHeader, "a newer GLOW may read it, or roll back to its base"
    )


def read_tombstones(version: Path, header: DeltaHeader) -> NDArray[np.int64]:
    """The deleted rows of the base, int64 [t], ascending."""
    path = version / DELTA / TOMBSTONES_FILE
    rows = map_array(path, np.uint32, header.tombstones).astype(np.int64)
    if (rows[1:] <= rows[:-1]).any():
        raise FormatError(f"{DELTA}{TOMBSTONES_FILE} does not ascend; roll back to an older version")
    if len(rows) and rows[-1] >= header.base_documents:
        raise MismatchError(
            f"{DELTA}{TOMBSTONES_FILE} names row {rows[-1]} of a base of {header.base_documents} documents; "
            "roll back to an older version"
        )
    return rows


def read_order(version: Path, header: DeltaHeader) -> NDArray[np.uint32]:
    """The rank of each document's id among all ids of base and delta, uint32 [N + M]."""
    rows = header.base_documents + header.documents
    order: NDArray[np.uint32] = map_array(version / DELTA / ORDER_FILE, np.uint32, rows)
    return order


def write_delta_rows(folder: Path, rows: DeltaRows) -> None:
    """Writes `tombstones.npy`, `order.npy` and `delta.json`."""
    np.save(folder / TOMBSTONES_FILE, rows.tombstones.astype(np.uint32), allow_pickle=False)
    np.save(folder / ORDER_FILE, rows.order, allow_pickle=False)
    rows.header.save(folder / HEADER_FILE)


def joined_order(
    order: NDArray[np.uint32],  # uint32 [N], ranks within the base
    documents: SortedIds,  # the base's; its index is searched once for each of the other ids
    ids: Sequence[str],
) -> NDArray[np.uint32]:
    """The rank of each id among those of a base and others, in code point order; of equal ids the later comes first.

    Returns uint32 [N + M], a permutation.
    """
    # For each other id, how many ids of the base come before it.
    rows = documents.rows_before(ids)
    before = np.array([0 if row is None else int(order[row]) + 1 for row in rows], np.int64)
    # UTF-8 sorts like code points.
    by_id = np.array(sorted(range(len(ids)), key=lambda place: ids[place].encode()), np.int64)
    joined = np.empty(len(order) + len(ids), np.uint32)
    joined[len(order) + by_id] = before[by_id] + np.arange(len(ids))
    # A row of rank r moves up by the number of other ids with at most r ids of the base before them.
    shift = np.cumsum(np.bincount(before, minlength=len(order) + 1))
    joined[: len(order)] = order + shift[order]
    return joined
