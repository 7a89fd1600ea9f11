"""`delta/` of a version: what was added, replaced and deleted since its base, as a small index of its own.

The other files of such a version are those of its base. `delta/` holds `delta.json`, `tombstones.npy` (uint32 [t], ascending:
rows of the base that are gone), `order.npy` (uint32 [N + M]: the rank of each document's id, of base and delta together,
where the base has columns), and a segment: `documents.sqlite`, `vectors.faiss` (flat), `columns/`, `impacts/` and
`passages/` where the base has them, all in the formats of a version. Term table and model are the base's.

N, M   documents of base and delta      t   tombstones
"""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import FormatError, MismatchError
from glow.options import StrictModel
from glow.storage import map_array, read_header

__all__ = [
    "DELTA_FOLDER", "DELTA_HEADER", "DeltaHeader", "in_delta", "read_delta_header", "read_order",
    "read_tombstones", "write_rows",
]  # fmt: skip

DELTA_FOLDER = "delta"
HEADER_FILE, TOMBSTONES_FILE, ORDER_FILE = "delta.json", "tombstones.npy", "order.npy"
DELTA_HEADER = f"{DELTA_FOLDER}/{HEADER_FILE}"
"""A version with this file has a delta."""
Count = Annotated[int, Field(ge=0, lt=2**32)]


class DeltaHeader(StrictModel):
    """`delta.json`.

    Attributes:
        format: of the folder.
        base_documents, base_vectors: rows of the base: its documents, and its passages where it has them.
        documents, vectors: those of the delta.
        tombstones: rows of the base that are gone.
    """

    format: Literal[1] = 1
    base_documents: Count
    base_vectors: Count
    documents: Count
    vectors: Count
    tombstones: Count


def in_delta(files: Collection[str]) -> frozenset[str]:
    """Those of a version's files that are the delta's, by their paths in `delta/`."""
    prefix = f"{DELTA_FOLDER}/"
    return frozenset(name.removeprefix(prefix) for name in files if name.startswith(prefix))


def read_delta_header(version: Path) -> DeltaHeader:
    """Reads `delta.json` of a version's folder.

    Raises:
        FormatError: if it is missing, or of another format.
    """
    return read_header(
        version / DELTA_HEADER, DeltaHeader, "a newer GLOW may read it, or roll back to its base"
    )


def read_tombstones(version: Path, header: DeltaHeader) -> NDArray[np.int64]:
    """The rows of the base that are gone, int64 [t], ascending.

    Raises:
        FormatError: if it is damaged.
        MismatchError: if rows that the base has not.
    """
    path = version / DELTA_FOLDER / TOMBSTONES_FILE
    rows = map_array(path, np.uint32, header.tombstones).astype(np.int64)
    if (rows[1:] <= rows[:-1]).any():
        raise FormatError(f"{DELTA_FOLDER}/{TOMBSTONES_FILE} does not ascend; roll back to an older version")
    if len(rows) and rows[-1] >= header.base_documents:
        raise MismatchError(
            f"{DELTA_FOLDER}/{TOMBSTONES_FILE} names row {rows[-1]} of a base of {header.base_documents} documents; "
            "roll back to an older version"
        )
    return rows


def read_order(version: Path, header: DeltaHeader) -> NDArray[np.uint32]:
    """The rank of each document's id among all ids of base and delta, uint32 [N + M].

    Raises:
        FormatError: if it is damaged.
    """
    rows = header.base_documents + header.documents
    order: NDArray[np.uint32] = map_array(version / DELTA_FOLDER / ORDER_FILE, np.uint32, rows)
    return order


def write_rows(folder: Path, tombstones: NDArray[np.int64], order: NDArray[np.uint32] | None) -> None:
    """Writes `tombstones.npy` and, where the base has columns, `order.npy`.

    Args:
        folder: `delta/` in the making.
        tombstones: int64 [t], ascending.
        order: uint32 [N + M].
    """
    np.save(folder / TOMBSTONES_FILE, tombstones.astype(np.uint32), allow_pickle=False)
    if order is not None:
        np.save(folder / ORDER_FILE, order, allow_pickle=False)
