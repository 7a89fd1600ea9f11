"""Index parts and their file formats: dense vectors, document store, and a version as a whole."""

from glow.search.arrangement import Arrangement, FilterBoost, RecencyBoost, SortKey, arrange
from glow.search.columns import (
    COLUMNS_FOLDER,
    COLUMNS_HEADER,
    ORDER_FILE,
    Columns,
    ColumnsHeader,
    Field,
    build_columns,
    duration_s,
    now_s,
    pick,
)
from glow.search.delta import (
    DELTA_FOLDER,
    DELTA_HEADER,
    VECTORS_FILE,
    Delta,
    DeltaBase,
    SegmentedDocuments,
    Segments,
    SegmentSlice,
    SegmentVectors,
    map_vectors,
    merge_documents,
    merge_impacts,
    merge_passages,
    merge_spelling,
    merge_term_states,
    write_delta,
)
from glow.search.dense import (
    KINDS,
    DenseIndex,
    IndexKind,
    SearchParams,
    VectorRows,
    build_dense,
    choose_kind,
    index_bytes,
    require_buildable,
    require_device,
    set_threads,
)
from glow.search.dense_scores import dense_scorer
from glow.search.documents import DocumentStore, DocumentWriter, not_found
from glow.search.filters import (
    Expression,
    FacetCounts,
    FacetRequest,
    count_terms,
    count_values,
    field_of,
    parse_facets,
    parse_filter,
)
from glow.search.fusion import RRF_K, fuse, rrf
from glow.search.hybrid import (
    DEFAULT_FUSION,
    FUSION_FILE,
    HEAD,
    Fused,
    Fusion,
    FusionWeights,
    fuse_rankings,
    uncertainty,
)
from glow.search.index import (
    DENSE_FILE,
    DOCUMENTS_FILE,
    MODEL_FOLDER,
    REPORT_FILE,
    STEMS_FOLDER,
    TERMS_FOLDER,
    Index,
)
from glow.search.learned import (
    LEARNED_WEIGHT_FILE,
    LEARNED_WORDS_FOLDER,
    Expansion,
    LearnedImpacts,
    LearnedWeight,
    LearnedWords,
    WordScorer,
    WordSide,
    build_learned,
    choose_words,
    open_learned,
)
from glow.search.lexical import (
    IMPACTS_FILES,
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    LEARNED_FILES,
    LEARNED_FOLDER,
    Bm25,
    ImpactHeader,
    ImpactIndex,
    build_lexical,
    read_impacts_header,
)
from glow.search.passages import (
    PASSAGES_FOLDER,
    FoundPassage,
    PassageMap,
    PassagesHeader,
    build_passages,
    passages_of,
    search_documents,
)
from glow.search.queries import QueryReading, Typos, read_query
from glow.search.ranking import Ranking, best
from glow.search.reranker_parts import open_states, reranker_digest
from glow.search.reranking import (
    DEFAULT_MIXTURE,
    MAX_DEPTH,
    AttendedWord,
    Mixture,
    Rerankable,
    Reranking,
    attended_words,
    mixed,
    rerank,
    score_unit,
)
from glow.search.retrievers import (
    DEFAULT_CANDIDATES,
    HybridCandidates,
    Ranked,
    Retriever,
    Searchable,
    Words,
    gather_hybrid,
    rank_dense,
    rank_hybrid,
    rank_lexical,
    words_of,
)
from glow.search.row_mask import RowMask
from glow.search.spelling import (
    SPELLING_FOLDER,
    SPELLING_HEADER,
    Correction,
    Speller,
    SpellingTable,
    build_spelling,
)
from glow.search.states import (
    STATES_FOLDER,
    CodedStates,
    StateBits,
    StatesHeader,
    StatesWriter,
    TermStates,
    code_bytes,
    decode_states,
    encode_states,
    write_states,
)
from glow.search.views import DenseView, DocumentsView, ImpactsView, LearnedView, StatesView
from glow.storage import map_array

__all__ = [
    "COLUMNS_FOLDER", "COLUMNS_HEADER", "DEFAULT_CANDIDATES", "DEFAULT_FUSION", "DEFAULT_MIXTURE", "DELTA_FOLDER",
    "DELTA_HEADER", "DENSE_FILE", "DOCUMENTS_FILE", "FUSION_FILE", "HEAD", "IMPACTS_FILES", "IMPACTS_FOLDER",
    "IMPACTS_HEADER", "KINDS", "LEARNED_FILES", "LEARNED_FOLDER", "LEARNED_WEIGHT_FILE", "LEARNED_WORDS_FOLDER",
    "MAX_DEPTH", "MODEL_FOLDER", "ORDER_FILE", "PASSAGES_FOLDER", "REPORT_FILE", "RRF_K", "SPELLING_FOLDER",
    "SPELLING_HEADER", "STATES_FOLDER", "STEMS_FOLDER", "TERMS_FOLDER", "VECTORS_FILE", "Arrangement",
    "AttendedWord", "Bm25", "CodedStates", "Columns", "ColumnsHeader", "Correction", "Delta", "DeltaBase",
    "DenseIndex", "DenseView", "DocumentStore", "DocumentWriter", "DocumentsView", "Expansion", "Expression",
    "FacetCounts", "FacetRequest", "Field", "FilterBoost", "FoundPassage", "Fused", "Fusion", "FusionWeights",
    "HybridCandidates", "ImpactHeader", "ImpactIndex", "ImpactsView", "Index", "IndexKind", "LearnedImpacts",
    "LearnedView", "LearnedWeight", "LearnedWords", "Mixture", "PassageMap", "PassagesHeader", "QueryReading",
    "Ranked", "Ranking", "RecencyBoost", "Rerankable", "Reranking", "Retriever", "RowMask", "SearchParams",
    "Searchable", "SegmentSlice", "SegmentVectors", "SegmentedDocuments", "Segments", "SortKey", "Speller", "SpellingTable",
    "StateBits", "StatesHeader", "StatesView", "StatesWriter", "TermStates", "Typos", "VectorRows", "WordScorer",
    "WordSide", "Words", "arrange", "attended_words", "best", "build_columns", "build_dense", "build_learned",
    "build_lexical", "build_passages", "build_spelling", "choose_kind", "choose_words", "code_bytes",
    "count_terms", "count_values", "decode_states", "dense_scorer", "duration_s", "encode_states", "field_of",
    "fuse", "fuse_rankings", "gather_hybrid", "index_bytes", "map_array", "map_vectors", "merge_documents",
    "merge_impacts", "merge_passages", "merge_spelling", "merge_term_states", "mixed",
    "not_found", "now_s", "open_learned", "open_states", "parse_facets", "parse_filter", "passages_of", "pick",
    "rank_dense", "rank_hybrid", "rank_lexical", "read_impacts_header", "read_query", "require_buildable",
    "require_device", "rerank", "reranker_digest", "rrf", "score_unit", "search_documents", "set_threads",
    "uncertainty", "words_of", "write_delta", "write_states",
]  # fmt: skip
