"""Options of a search; docs/search.md explains them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = ["PagedOptions", "SearchOptions", "SearchRequest"]


class PagedOptions(TypedDict, total=False):
    """Options of a paged search; an option that is None is not sent.

    Attributes:
        offset: number of hits to skip.
        candidates: number of hits to retrieve; pages of one ranking need the same number.
        retriever: how to find candidates.
        vector: query vector of the index's dimensions, in place of a query.
        like: document in place of a query: `{"id": "d42"}`.
        typos: `off` searches the query as it is typed.
        fusion: how `hybrid` fuses: `{"method": "convex" | "rrf", "k": 60, "weights": {"dense": 0.7, "lexical": 0.3}}`.
        rerank: True, or `{"depth": 50, "method": "cross-encoder" | "late-interaction"}`.
        filter: `{"and": […]}`, `{"or": […]}`, `{"not": {…}}`, or `{"field": "year", "gte": 2000, "lt": 2010}`.
        min_score: lowest score of a hit.
        sort: `[{"field": "year", "order": "desc"}, {"field": "score"}]`.
        boosts: `[{"filter": {…}, "factor": 2}, {"recency": {"field": "published", "half_life": "30d"}}]`.
        group_by: `{"field": "author", "size": 1}`.
        fields: names of the fields and metadata to return; default: all.
        facets: metadata fields to count, by name or as `{"field": "lang", "limit": 10}`.
        highlight: True, or `{"fields": […], "fragments": 2, "fragment_chars": 200}`.
        vectors: True: return the stored vector of each hit.
        explain: True, or `{"leave_one_out": True}`.
        params: `{"ef_search": 64, "nprobe": 16, "exact": False}`.
        timeout_ms: the service's deadline, in milliseconds.
        allow_partial: after the deadline, return partial results.
        allow_truncated: False: fail if the response would be too large; otherwise hits are cut and marked.
    """

    offset: int | None
    candidates: int | None
    retriever: Literal["dense", "lexical", "learned-sparse", "hybrid"] | None
    vector: Sequence[float] | None
    like: Mapping[str, Any] | None
    typos: Literal["auto", "off"] | None
    fusion: Mapping[str, Any] | None
    rerank: bool | Mapping[str, Any] | None
    filter: Mapping[str, Any] | None
    min_score: float | None
    sort: Sequence[Mapping[str, Any]] | None
    boosts: Sequence[Mapping[str, Any]] | None
    group_by: Mapping[str, Any] | None
    fields: Sequence[str] | None
    facets: Sequence[str | Mapping[str, Any]] | None
    highlight: bool | Mapping[str, Any] | None
    vectors: bool | None
    explain: bool | Mapping[str, Any] | None
    params: Mapping[str, Any] | None
    timeout_ms: int | None
    allow_partial: bool | None
    allow_truncated: bool | None


class SearchOptions(PagedOptions, total=False):
    """Options of one search.

    Attributes:
        top_k: hits to return.
    """

    top_k: int | None


class SearchRequest(SearchOptions, total=False):
    """One search of a batch: its own options, and a query unless they give a vector or a document."""

    query: str | None
