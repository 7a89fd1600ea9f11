"""What an index is made of: vectors, postings, columns and the rest, a package each, and a version of it, open."""

from glow.index.dense_part import DENSE_FILE, StoredVectors, open_dense
from glow.index.parts import DOCUMENTS_FILE, MODEL_FOLDER, REPORT_FILE, STEMS_FOLDER, TERMS_FOLDER
from glow.index.ranking import Ranking, best
from glow.index.reranker_parts import open_states
from glow.index.row_mask import RowMask
from glow.index.segments import Segments
from glow.index.settings import (
    DEFAULT_FUSION,
    DEFAULT_MIXTURE,
    FUSION_FILE,
    RRF_K,
    Fusion,
    FusionWeights,
    Mixture,
)
from glow.index.time_limit import wanted_until
from glow.index.version import Index
from glow.index.views import DenseView, DocumentsView, ImpactsView, LearnedView, StatesView

__all__ = [
    "DEFAULT_FUSION",
    "DEFAULT_MIXTURE",
    "DENSE_FILE",
    "DOCUMENTS_FILE",
    "FUSION_FILE",
    "MODEL_FOLDER",
    "REPORT_FILE",
    "RRF_K",
    "STEMS_FOLDER",
    "TERMS_FOLDER",
    "DenseView",
    "DocumentsView",
    "Fusion",
    "FusionWeights",
    "ImpactsView",
    "Index",
    "LearnedView",
    "Mixture",
    "Ranking",
    "RowMask",
    "Segments",
    "StatesView",
    "StoredVectors",
    "best",
    "open_dense",
    "open_states",
    "wanted_until",
]
