"""One build from input to a version: its steps, its work folder, its report."""

from glow_index_builder.building.builder import BuildResult, build
from glow_index_builder.building.frozen import FrozenStatistics
from glow_index_builder.building.recall import RECALL_FLOOR, measure_recall
from glow_index_builder.building.report import (
    describe_columns,
    describe_lexical,
    stage_seconds,
    write_json,
)
from glow_index_builder.building.vector_store import VectorStore
from glow_index_builder.building.work import WorkFolder, open_work
from glow_index_builder.building.work_key import key_of

__all__ = [
    "RECALL_FLOOR",
    "BuildResult",
    "FrozenStatistics",
    "VectorStore",
    "WorkFolder",
    "build",
    "describe_columns",
    "describe_lexical",
    "key_of",
    "measure_recall",
    "open_work",
    "stage_seconds",
    "write_json",
]  # fmt: skip
