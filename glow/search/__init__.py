"""How an index is searched: ranking by vectors and words, fusion, re-ranking, arrangement."""

from glow.search.arrangement import Arrangement, FilterBoost, RecencyBoost, SortKey, arrange
from glow.search.fusion import fuse, rrf
from glow.search.hybrid import HEAD, Fused, Scorer, fuse_rankings, uncertainty
from glow.search.passage_search import search_documents
from glow.search.queries import Typos, read_query
from glow.search.reranking import (
    MAX_DEPTH,
    AttendedWord,
    Reranking,
    attended_words,
    mixed,
    rerank,
    score_unit,
)
from glow.search.retrievers import (
    DEFAULT_CANDIDATES,
    RETRIEVERS,
    Ranked,
    Retriever,
    Words,
    gather_hybrid,
    rank_dense,
    rank_hybrid,
    rank_lexical,
)

__all__ = [
    "DEFAULT_CANDIDATES",
    "HEAD",
    "MAX_DEPTH",
    "RETRIEVERS",
    "Arrangement",
    "AttendedWord",
    "FilterBoost",
    "Fused",
    "Ranked",
    "RecencyBoost",
    "Reranking",
    "Retriever",
    "Scorer",
    "SortKey",
    "Typos",
    "Words",
    "arrange",
    "attended_words",
    "fuse",
    "fuse_rankings",
    "gather_hybrid",
    "mixed",
    "rank_dense",
    "rank_hybrid",
    "rank_lexical",
    "read_query",
    "rerank",
    "rrf",
    "score_unit",
    "search_documents",
    "uncertainty",
]
