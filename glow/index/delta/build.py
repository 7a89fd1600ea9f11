"""Writing `delta/` of a version in the making, from segments and the rows of the base that are gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index.columns import build_columns
from glow.index.delta.format import DELTA_FOLDER, HEADER_FILE, DeltaHeader, write_rows
from glow.index.delta.merge import (
    SegmentSlice,
    merge_documents,
    merge_passages,
    merge_spelling,
    merge_term_states,
)
from glow.index.delta.merge_postings import merge_impacts
from glow.index.delta.vectors import SegmentVectors
from glow.index.dense_part import DENSE_FILE
from glow.index.parts import DOCUMENTS_FILE
from glow.index.postings import IMPACTS_FOLDER, LEARNED_FOLDER
from glow.index.stored_fields import DocumentStore
from glow.index.vectors import build_dense

__all__ = ["DeltaBase", "joined_order", "map_vectors", "write_delta"]

VECTORS_FILE = "vectors.f32"
"""Working file: the vectors, until the dense index holds them."""


@dataclass(frozen=True, slots=True, eq=False)
class DeltaBase:
    """What a delta must know of its base.

    Attributes:
        documents: of the base, N.
        vectors: how many, D each.
        dimensions: D.
        order: uint32 [N], the rank of each document's id; None in a version of an older GLOW.
    """

    documents: DocumentStore
    vectors: int
    dimensions: int
    order: NDArray[np.uint32] | None


def write_delta(
    version: Path, base: DeltaBase, segments: Sequence[SegmentSlice], tombstones: NDArray[np.int64]
) -> DeltaHeader:
    """Writes the folder.

    Args:
        version: folder of the version in the making.
        base: the base.
        segments: what the delta holds: one or more with the same parts, each with a vector reader.
        tombstones: int64 [t], rows of the base that are gone, ascending.

    Raises:
        OSError: if the disk is full or cannot be written.
        BuildError: if the disk, while vectors are written.
    """
    folder = version / DELTA_FOLDER
    folder.mkdir()
    merge_documents(segments, folder / DOCUMENTS_FILE)
    documents = DocumentStore(folder / DOCUMENTS_FILE)
    if segments[0].impacts is not None:
        merge_impacts(segments, folder / IMPACTS_FOLDER)
        merge_spelling(segments, folder)
    if segments[0].learned is not None:
        merge_impacts(segments, folder / LEARNED_FOLDER, learned=True)
    if segments[0].passages is not None:
        merge_passages(segments, folder)
    merge_term_states(segments, folder)
    vectors = SegmentVectors(segments, base.dimensions)
    build_dense(vectors, "flat").save(folder / DENSE_FILE)
    order = None
    if base.order is not None:
        build_columns(documents, folder)
        order = joined_order(base.order, base.documents, [document.id for document in documents.scan()])
    write_rows(folder, tombstones, order)
    header = DeltaHeader(
        base_documents=base.documents.count,
        base_vectors=base.vectors,
        documents=documents.count,
        vectors=len(vectors),
        tombstones=len(tombstones),
    )
    header.save(folder / HEADER_FILE)
    return header


def joined_order(
    order: NDArray[np.uint32], documents: DocumentStore, ids: Sequence[str]
) -> NDArray[np.uint32]:
    """The rank of each id among those of a base and more, in code point order; of equal ids the later stands first.

    Args:
        order: uint32 [N], ranks within the base.
        documents: the base's, whose index of ids is asked once for each of the others.
        ids: M others, each once.

    Returns:
        uint32 [N + M], a permutation.
    """
    # For each of the others, how many ids of the base come before it.
    before = np.zeros(len(ids), np.int64)
    for place, identifier in enumerate(ids):
        row = documents.row_before(identifier)
        before[place] = 0 if row is None else int(order[row]) + 1
    # UTF-8 sorts as code points do.
    by_id = np.array(sorted(range(len(ids)), key=lambda place: ids[place].encode()), np.int64)
    joined = np.empty(len(order) + len(ids), np.uint32)
    joined[len(order) + by_id] = before[by_id] + np.arange(len(ids))
    # A row of rank r moves up by as many others as have r ids or fewer before them.
    shift = np.cumsum(np.bincount(before, minlength=len(order) + 1))
    joined[: len(order)] = order + shift[order]
    return joined


def map_vectors(path: Path, count: int, dimensions: int) -> NDArray[np.float32]:
    """Plain vectors in a file, memory-mapped: float32 [count, D]."""
    if count == 0:  # an empty file cannot be mapped
        return np.empty((0, dimensions), np.float32)
    return np.memmap(path, np.float32, "r", shape=(count, dimensions))
