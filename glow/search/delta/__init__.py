"""A base and a small index of what changed since, written, read and merged."""

from glow.search.delta.build import VECTORS_FILE, DeltaBase, map_vectors, write_delta
from glow.search.delta.format import DELTA_FOLDER, DELTA_HEADER, DeltaHeader, read_delta_header
from glow.search.delta.merge import (
    SegmentSlice,
    merge_documents,
    merge_passages,
    merge_spelling,
    merge_term_states,
)
from glow.search.delta.merge_postings import merge_impacts
from glow.search.delta.reader import Delta, join, view_of
from glow.search.delta.segment_parts import SegmentedDocuments
from glow.search.delta.segments import Segments
from glow.search.delta.vectors import SegmentVectors

__all__ = [
    "DELTA_FOLDER", "DELTA_HEADER", "VECTORS_FILE", "Delta", "DeltaBase", "DeltaHeader", "SegmentSlice",
    "SegmentVectors", "SegmentedDocuments", "Segments", "join", "map_vectors", "merge_documents", "merge_impacts",
    "merge_passages", "merge_spelling", "merge_term_states", "read_delta_header", "view_of", "write_delta",
]  # fmt: skip
