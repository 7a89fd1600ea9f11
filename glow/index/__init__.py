"""An open index version: a package for each component, and the code that they share."""

from glow.index.calibration import UNCALIBRATED, Calibration, Calibrations
from glow.index.component import Asked, Component, ComponentOptions, Explained, RowComponent, Rules
from glow.index.components import COMPONENTS
from glow.index.corpus import Corpus, ImportRows, RangeTask
from glow.index.delta import DeltaHeader, DeltaRows, joined_order, read_tombstones, write_delta_rows
from glow.index.encoding import Encoded, EncodeJob, Records, RowEncoder, Texts, VectorRows
from glow.index.models import MODEL_FOLDER, TERMS_FOLDER
from glow.index.numpy_threads import set_numpy_threads
from glow.index.opening import Delta, closed_base, files_of, open_delta
from glow.index.ranking import Ranking, best
from glow.index.row_mask import RowMask
from glow.index.searchable import Searchable
from glow.index.segment import DELTA, Key, MergeSource, Rows, Segment, View
from glow.index.segments import BaseAndDelta, Segments
from glow.index.settings import (
    DEFAULT_FUSION,
    DEFAULT_RERANK_WEIGHT,
    FUSION_FILE,
    RRF_K,
    Fusion,
    FusionWeights,
    RerankWeight,
)
from glow.index.time_limit import run_all, wanted_until
from glow.index.version import REPORT_FILE, Index
from glow.index.walk import (
    AnyComponent,
    asked_rules,
    counts_of,
    held_rules,
    is_made_anew,
    join_segments,
    merge_segments,
    open_component,
    open_segment,
    view_of,
)

__all__ = [
    "COMPONENTS", "DEFAULT_FUSION", "DEFAULT_RERANK_WEIGHT", "DELTA", "FUSION_FILE", "MODEL_FOLDER", "REPORT_FILE",
    "RRF_K", "TERMS_FOLDER", "UNCALIBRATED", "AnyComponent", "Asked", "BaseAndDelta", "Calibration", "Calibrations",
    "Component", "ComponentOptions", "Corpus", "Delta", "DeltaHeader", "DeltaRows", "EncodeJob", "Encoded",
    "Explained", "Fusion", "FusionWeights", "ImportRows", "Index", "Key", "MergeSource", "RangeTask", "Ranking",
    "Records", "RerankWeight", "RowComponent", "RowEncoder", "RowMask", "Rows", "Rules", "Searchable", "Segment",
    "Segments", "Texts", "VectorRows", "View", "asked_rules", "best", "closed_base", "counts_of", "files_of",
    "held_rules", "is_made_anew", "join_segments", "joined_order", "merge_segments", "open_component", "open_delta",
    "open_segment", "read_tombstones", "run_all", "set_numpy_threads", "view_of", "wanted_until", "write_delta_rows",
]  # fmt: skip
