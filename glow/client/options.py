"""What a search can be asked beside its query; docs/search.md says what each means."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = ["PagedOptions", "SearchOptions", "SearchRequest"]


class PagedOptions(TypedDict, total=False):
    """Options of a search that goes through pages; one that is None is left out.

    Attributes:
        offset: hits to pass over first.
        candidates: hits that the search gathers; pages inside the same candidates agree.
        retriever: how to find candidates.
        vector: in place of a query, of the index's dimensions.
        like: in place of a query: `{"id": "d42"}`.
        typos: `off` searches the query as it is typed.
        fusion: of `hybrid`: `{"method": "convex" | "rrf", "k": 60, "weights": {"dense": 0.7, "lexical": 0.3}}`.
        rerank: True, or `{"depth": 50, "method": "join" | "late"}`.
        filter: `{"and": […]}`, `{"or": […]}`, `{"not": {…}}`, or `{"field": "year", "gte": 2000, "lt": 2010}`.
        min_score: the least score of a hit.
        sort: `[{"field": "year", "order": "desc"}, {"field": "score"}]`.
        boosts: `[{"filter": {…}, "factor": 2}, {"recency": {"field": "published", "half_life": "30d"}}]`.
        group_by: `{"field": "author", "size": 1}`.
        fields: names of the fields and metadata to return; all where absent.
        facets: metadata fields to count, by name or as `{"field": "lang", "limit": 10}`.
        highlight: True, or `{"fields": […], "fragments": 2, "fragment_chars": 200}`.
        vectors: True: each hit has its stored vector.
        explain: True, or `{"leave_one_out": True}`.
        params: `{"ef_search": 64, "nprobe": 16, "exact": False}`.
        timeout_ms: the service's deadline, in milliseconds.
        allow_partial: after the deadline, answer with what there is.
        allow_truncated: False: fail if the response would be too large; else hits are cut and say so.
    """

    offset: int | None
    candidates: int | None
    retriever: Literal["dense", "lexical", "learned", "hybrid"] | None
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
    """One search of a batch: its query, unless a vector or a document stands for one, and options of its own."""

    query: str | None
