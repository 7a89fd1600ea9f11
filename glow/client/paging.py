"""Iteration over the pages of one search, all from the same candidates."""

from typing import cast

from glow.client.calls import Call, search
from glow.client.options import PagedOptions, SearchOptions
from glow.contract import SearchResult
from glow.errors import ConfigError

__all__ = ["Paging"]

DEFAULT_CANDIDATES = 100
"""The service's default number of candidates, unless its setting `default_candidates` differs."""


class Paging:
    """State of an iteration over pages.

    Pages are consistent only with the same number of `candidates`. Unless the caller sets it, a long iteration requests
    on every page as many candidates as the whole iteration needs. A short one uses the service's default:
    fewer candidates would change the ranking of hybrid search.

    Args:
        query: what to search for.
        page_size: hits per page, at least 1.
        limit: hits of all pages, at least 1.
        options: options of every page.

    Raises:
        ConfigError: if a number is below 1.
    """

    def __init__(self, query: str | None, page_size: int, limit: int, options: PagedOptions) -> None:
        if min(page_size, limit) < 1:
            raise ConfigError(f"page_size is {page_size} and limit is {limit}; both must be at least 1")
        self._query = query
        self._page_size = page_size
        self._offset = options.get("offset") or 0
        self._end = self._offset + limit
        self._options = cast(SearchOptions, dict(options))
        if options.get("candidates") is None and self._end > DEFAULT_CANDIDATES:
            self._options["candidates"] = self._end
        self._is_over = False

    def next_call(self) -> Call[SearchResult] | None:
        """The call for the next page; None after the last."""
        size = min(self._page_size, self._end - self._offset)
        if self._is_over or size < 1:
            return None
        here = cast(SearchOptions, {**self._options, "offset": self._offset, "top_k": size})
        return search(self._query, **here)

    def took(self, page: SearchResult) -> None:
        """Records a received page; a page that is not full is the last."""
        size = min(self._page_size, self._end - self._offset)
        self._is_over = len(page.hits) < size
        self._offset += size
