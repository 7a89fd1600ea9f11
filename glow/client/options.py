"""What a search can be asked beside its query; docs/http.md says what each means."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

__all__ = ["PagedOptions", "SearchOptions", "SearchRequest"]


class PagedOptions(TypedDict, total=False):
    """Options of a search that goes through pages; one that is None is left out.

    Attributes:
        offset: hits to pass over first.
        candidates: hits that the search gathers; pages inside the same candidates agree.
        retriever: how to find candidates.
        fusion: of `hybrid`: `{"method": "convex" | "rrf", "k": 60, "weights": {"dense": 0.7, "lexical": 0.3}}`.
        rerank: `{"depth": 50}`.
        filter: `{"and": […]}`, `{"or": […]}`, `{"not": {…}}`, or `{"field": "year", "gte": 2000, "lt": 2010}`.
        fields: names of the fields to return; all where absent.
        facets: metadata fields to count, by name or as `{"field": "lang", "limit": 10}`.
        highlight: True, or `{"fields": […], "fragments": 2, "fragment_chars": 200}`.
        explain: True, or `{"leave_one_out": True}`.
        params: `{"ef_search": 64, "nprobe": 16, "exact": False}`.
        timeout_ms: the service's deadline, in milliseconds.
        allow_partial: after the deadline, answer with what there is.
    """

    offset: int | None
    candidates: int | None
    retriever: Literal["dense", "lexical", "hybrid"] | None
    fusion: Mapping[str, Any] | None
    rerank: Mapping[str, Any] | None
    filter: Mapping[str, Any] | None
    fields: Sequence[str] | None
    facets: Sequence[str | Mapping[str, Any]] | None
    highlight: bool | Mapping[str, Any] | None
    explain: bool | Mapping[str, Any] | None
    params: Mapping[str, Any] | None
    timeout_ms: int | None
    allow_partial: bool | None


class SearchOptions(PagedOptions, total=False):
    """Options of one search.

    Attributes:
        top_k: hits to return.
    """

    top_k: int | None


class SearchRequest(SearchOptions, total=False):
    """One search of a batch: its query, and options of its own."""

    query: Required[str]
