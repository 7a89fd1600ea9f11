"""One build from input to a version: its steps, its work folder, its report."""

from glow_index_builder.building.builder import BuildResult, build
from glow_index_builder.building.recall import RECALL_FLOOR, measure_recall
from glow_index_builder.building.report import (
    describe_columns,
    describe_lexical,
    stage_seconds,
    write_json,
)
from glow_index_builder.building.vector_store import VectorStore

__all__ = [
    "RECALL_FLOOR",
    "BuildResult",
    "VectorStore",
    "build",
    "describe_columns",
    "describe_lexical",
    "measure_recall",
    "stage_seconds",
    "write_json",
]  # fmt: skip
