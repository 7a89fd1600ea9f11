"""A base and a small index of what changed since, written, read and merged."""

from glow.index.delta.build import VECTORS_FILE, DeltaBase, joined_order, map_vectors, write_delta
from glow.index.delta.format import (
    DELTA_FOLDER,
    DELTA_HEADER,
    DeltaHeader,
    read_delta_header,
    read_tombstones,
)
from glow.index.delta.merge import (
    SegmentSlice,
    merge_documents,
    merge_passages,
    merge_spelling,
    merge_term_states,
)
from glow.index.delta.merge_postings import merge_impacts
from glow.index.delta.reader import Delta, join, view_of
from glow.index.delta.segment_columns import join_columns
from glow.index.delta.segment_parts import SegmentedDense, SegmentedDocuments
from glow.index.delta.vectors import SegmentVectors

__all__ = [
    "DELTA_FOLDER",
    "DELTA_HEADER",
    "VECTORS_FILE",
    "Delta",
    "DeltaBase",
    "DeltaHeader",
    "SegmentSlice",
    "SegmentVectors",
    "SegmentedDense",
    "SegmentedDocuments",
    "join",
    "join_columns",
    "joined_order",
    "map_vectors",
    "merge_documents",
    "merge_impacts",
    "merge_passages",
    "merge_spelling",
    "merge_term_states",
    "read_delta_header",
    "read_tombstones",
    "view_of",
    "write_delta",
]
