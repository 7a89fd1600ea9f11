"""One build, from the input to a version: its steps, its work directory and its report."""

from glow_index_builder.building.builder import BuildResult, build
from glow_index_builder.building.documents import MadeCorpus, store_rows
from glow_index_builder.building.recall import RECALL_FLOOR, measure_recall
from glow_index_builder.building.report import stage_seconds, write_json

__all__ = [
    "RECALL_FLOOR", "BuildResult", "MadeCorpus", "build", "measure_recall", "stage_seconds", "store_rows", "write_json",
]  # fmt: skip
