"""An open index version: a package for each component, and the code that they share."""

from glow.index.component import (
    BuildInputs,
    Component,
    ComponentOptions,
    Corpus,
    Encoded,
    EncodeJob,
    Explained,
    ImportRows,
    RangeTask,
    Records,
    RowEncoder,
    Rules,
    Texts,
    VectorRows,
)
from glow.index.delta import DeltaHeader, DeltaRows, joined_order, read_tombstones, write_delta_rows
from glow.index.models import MODEL_FOLDER, TERMS_FOLDER
from glow.index.ranking import Ranking, RowMask, best, run_all, set_numpy_threads, wanted_until
from glow.index.segment import DELTA, MergeSource, RowLayout, Rows, Segment, Segments, View
from glow.index.settings import (
    DEFAULT_FUSION,
    DEFAULT_RERANK_WEIGHT,
    FUSION_FILE,
    RRF_K,
    UNCALIBRATED,
    CalibratedFusion,
    Calibration,
    Fusion,
    FusionWeights,
    RerankWeight,
)
from glow.index.version import (
    COMPONENTS,
    REPORT_FILE,
    AnyComponent,
    Delta,
    Index,
    closed_base,
    counts_of,
    existing_rules,
    files_of,
    is_made_anew,
    merge_segments,
    open_component,
    open_delta,
    open_segment,
    requested_rules,
    view_of,
)

__all__ = [
    "COMPONENTS", "DEFAULT_FUSION", "DEFAULT_RERANK_WEIGHT", "DELTA", "FUSION_FILE", "MODEL_FOLDER",
    "REPORT_FILE", "RRF_K", "TERMS_FOLDER", "UNCALIBRATED", "AnyComponent", "BuildInputs",
    "CalibratedFusion", "Calibration", "Component", "ComponentOptions", "Corpus", "Delta", "DeltaHeader",
    "DeltaRows", "EncodeJob", "Encoded", "Explained", "Fusion", "FusionWeights", "ImportRows", "Index",
    "MergeSource", "RangeTask", "Ranking", "Records", "RerankWeight", "RowEncoder", "RowLayout", "RowMask",
    "Rows", "Rules", "Segment", "Segments", "Texts", "VectorRows", "View", "best", "closed_base",
    "counts_of", "existing_rules", "files_of", "is_made_anew", "joined_order", "merge_segments",
    "open_component", "open_delta", "open_segment", "read_tombstones", "requested_rules", "run_all",
    "set_numpy_threads", "view_of", "wanted_until", "write_delta_rows",
]  # fmt: skip
