"""Searches an index: dense and lexical ranking, fusion, re-ranking, arrangement of hits."""

from glow.search.arrangement import Arrangement, FilterBoost, RecencyBoost, SortKey, arrange
from glow.search.calibration import SHARPNESS, Confidence, confidence_of, fit_logistic, signs_of
from glow.search.hybrid import (
    HEAD,
    Fused,
    Scorer,
    contributions,
    coverage_scorer,
    fuse,
    fuse_rankings,
    held_words,
    rrf,
    uncertainty,
)
from glow.search.matches import Matches, WordMatching, near_matches
from glow.search.query import (
    NO_OTHERS,
    AnalyzedQuery,
    Match,
    Others,
    Syntax,
    Typos,
    analyze_query,
    is_known,
    unknown_words,
)
from glow.search.reranking import MAX_DEPTH, AttendedWord, Reranking, attended_words, rerank, score_unit
from glow.search.retrievers import (
    DEFAULT_CANDIDATES,
    RETRIEVERS,
    EncodedQuery,
    RankedDocuments,
    Retriever,
    RetrieverOrAuto,
    Words,
    dense_scorer,
    fuse_hybrid,
    gather_hybrid,
    rank_dense,
    rank_hybrid,
    rank_lexical,
    reads_head,
    rows_read,
    search_documents,
    words_searched,
)
from glow.search.suggest import suggest
from glow.search.synonyms import NO_SYNONYMS, SynonymFile, Synonyms, read_synonyms
from glow.search.syntax import Constraint, constraint_mask, live_mask, reads_documents

__all__ = [
    "DEFAULT_CANDIDATES", "HEAD", "MAX_DEPTH", "NO_OTHERS", "NO_SYNONYMS", "RETRIEVERS", "SHARPNESS",
    "AnalyzedQuery", "Arrangement", "AttendedWord", "Confidence", "Constraint", "EncodedQuery",
    "FilterBoost", "Fused", "Match", "Matches", "Others", "RankedDocuments", "RecencyBoost", "Reranking",
    "Retriever", "RetrieverOrAuto", "Scorer", "SortKey", "SynonymFile", "Synonyms",
    "Syntax", "Typos", "WordMatching", "Words", "analyze_query", "arrange", "attended_words",
    "confidence_of", "constraint_mask", "contributions", "coverage_scorer", "dense_scorer",
    "fit_logistic", "fuse", "fuse_hybrid", "fuse_rankings", "gather_hybrid", "held_words", "is_known",
    "live_mask", "near_matches", "rank_dense", "rank_hybrid", "rank_lexical",
    "read_synonyms", "reads_documents", "reads_head", "rerank", "rows_read", "rrf", "score_unit",
    "search_documents", "signs_of", "suggest", "uncertainty", "unknown_words", "words_searched",
]  # fmt: skip
