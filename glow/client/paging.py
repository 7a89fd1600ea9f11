"""Going through the pages of one search, all of them out of the same candidates."""

from typing import cast

from glow.client.calls import Call, search
from glow.client.options import PagedOptions, SearchOptions
from glow.client.results import SearchResult
from glow.errors import ConfigError

__all__ = ["Paging"]

DEFAULT_CANDIDATES = 100
"""What a service gathers for a request that names none, unless its `default_candidates` says otherwise."""


class Paging:
    """Where a walk through pages stands.

    Pages agree with one another only inside the same `candidates`, so every page of a walk that needs more than the service
    gathers anyway asks for as many as the whole walk needs, unless the caller said how many. A shorter walk leaves the number to
    the service, as a plain search does: fewer would make another ranking where vectors and words are fused.

    Args:
        query: what to search for.
        page_size: hits of a page, at least 1.
        limit: hits of all pages, at least 1.
        options: of every page.

    Raises:
        ConfigError: if a number is below 1.
    """

    def __init__(self, query: str | None, page_size: int, limit: int, options: PagedOptions) -> None:
        if min(page_size, limit) < 1:
            raise ConfigError(f"page_size is {page_size} and limit {limit}; expected at least 1 of both")
        self._query = query
        self._page_size = page_size
        self._offset = options.get("offset") or 0
        self._end = self._offset + limit
        self._options = cast(SearchOptions, dict(options))
        if options.get("candidates") is None and self._end > DEFAULT_CANDIDATES:
            self._options["candidates"] = self._end
        self._is_over = False

    def next_call(self) -> Call[SearchResult] | None:
        """The call that brings the next page; None where there is none."""
        size = min(self._page_size, self._end - self._offset)
        if self._is_over or size < 1:
            return None
        here = cast(SearchOptions, {**self._options, "offset": self._offset, "top_k": size})
        return search(self._query, **here)

    def took(self, page: SearchResult) -> None:
        """Moves past a page; one that is not full is the last."""
        size = min(self._page_size, self._end - self._offset)
        self._is_over = len(page.hits) < size
        self._offset += size
