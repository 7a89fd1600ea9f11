"""Index parts and their file formats: dense vectors, document store, and a version as a whole."""

from glow.search.columns import Columns
from glow.search.columns_build import build_columns
from glow.search.columns_format import Header as ColumnsHeader
from glow.search.dense import DenseIndex, SearchParams, require_device, set_threads
from glow.search.dense_build import build_dense
from glow.search.documents import DocumentStore, DocumentWriter
from glow.search.fusion import RRF_K, fuse, rrf
from glow.search.hybrid import DEFAULT_FUSION, Fused, Fusion, FusionWeights, fuse_rankings
from glow.search.impacts import ImpactIndex
from glow.search.impacts_format import ImpactHeader
from glow.search.index import Index
from glow.search.kinds import KINDS, IndexKind, choose_kind, index_bytes, require_buildable
from glow.search.lexical_build import Bm25, build_lexical
from glow.search.passages import FoundPassage, PassageMap
from glow.search.passages_build import build_passages, passages_of
from glow.search.passages_search import search_documents
from glow.search.ranking import Ranking, best
from glow.search.row_mask import RowMask

__all__ = [
    "DEFAULT_FUSION",
    "KINDS",
    "RRF_K",
    "Bm25",
    "Columns",
    "ColumnsHeader",
    "DenseIndex",
    "DocumentStore",
    "DocumentWriter",
    "FoundPassage",
    "Fused",
    "Fusion",
    "FusionWeights",
    "ImpactHeader",
    "ImpactIndex",
    "Index",
    "IndexKind",
    "PassageMap",
    "Ranking",
    "RowMask",
    "SearchParams",
    "best",
    "build_columns",
    "build_dense",
    "build_lexical",
    "build_passages",
    "choose_kind",
    "fuse",
    "fuse_rankings",
    "index_bytes",
    "passages_of",
    "require_buildable",
    "require_device",
    "rrf",
    "search_documents",
    "set_threads",
]
