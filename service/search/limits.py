"""What one request may ask for; the settings of these names, without the others."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["SearchLimits"]


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Bounds of a search request, and what one that names nothing gets; `docs/settings.md` describes each."""

    max_query_chars: int
    max_top_k: int
    max_candidates: int
    default_candidates: int
    max_filter_terms: int
    max_explained_hits: int
    max_answer_bytes: int
    max_timeout_ms: int
    default_timeout_ms: int
    default_retriever: Literal["auto", "dense", "lexical", "learned", "hybrid"]
