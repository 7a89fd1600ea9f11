"""What a request costs, in the time of a plain search: so many permits of the bulk worker pool, and so many tokens of its key.

Prices are whole numbers, estimated from the request alone before any of its work is done; docs/security.md has the table. What no
request tells is how long its hits are: that part is paid once they were read.
"""

from glow.runtime import RerankMethod
from glow_service.search.calls import SearchCall

__all__ = [
    "COMPARED_CANDIDATES",
    "EXPLAINED_HIT",
    "FETCHED_CHARS",
    "FILTER_TERMS",
    "HIGHLIGHTED_CHARS",
    "LEAVE_ONE_OUT",
    "MOST_PLAIN",
    "MOST_READING",
    "READ_CHARS",
    "RERANKED_HITS",
    "TEXTS",
    "TEXT_CHARS",
    "reading_cost",
    "request_cost",
    "texts_cost",
]  # fmt: skip

EXPLAINED_HIT = 4
"""The document tower reads each hit that is explained."""
LEAVE_ONE_OUT = 8
"""The query tower reads the query again without each of its words."""
HIGHLIGHTED_CHARS = 50_000
"""Characters of snippets that a request asks for, for one more."""
READ_CHARS = 100_000
"""Characters of hits that are read for snippets, for one more."""
FETCHED_CHARS = 2_000_000
"""Characters of whole documents that are fetched as hits, whatever of them is shown, for one more."""
MOST_READING = 1
"""What the hits of a search may cost where it began; once they have, the others are read in the bulk work_pool."""
FILTER_TERMS = 200
"""Conditions, groups and values of a filter, for one more."""
RERANKED_HITS: dict[RerankMethod, int] = {"join": 20, "late": 40}
"""Hits that are read again, for one more."""
COMPARED_CANDIDATES = 500
"""Candidates whose tokens a hybrid search compares, for one more."""
TEXTS = {"query": 1, "document": 4}
"""Each text of `/v1/embeddings`, by the tower that reads it."""
TEXT_CHARS = 10_000
"""Characters of these texts, for one more: words are counted before the tower's budget cuts them."""
MOST_PLAIN = 4
"""A search that costs more runs in the bulk work_pool."""


def request_cost(call: SearchCall, filter_terms: int = 0) -> int:
    """The cost of one search, >= 1; an ordinary one, with highlights and a filter of people's size, costs 1.

    Args:
        call: the checked request.
        filter_terms: conditions, groups and values of its filter.
    """
    cost = 1 + filter_terms // FILTER_TERMS
    if call.highlight is not None:
        options = call.highlight.options
        snippet_chars = options.fragments * options.fragment_chars * len(call.highlight.fields)
        cost += call.top_k * snippet_chars // HIGHLIGHTED_CHARS
    if call.late and call.retriever == "hybrid":
        cost += call.candidates // COMPARED_CANDIDATES
    if call.rerank is not None:
        cost += -(-call.rerank.depth // RERANKED_HITS[call.rerank.method])
    if call.explain is not None:
        cost += call.top_k * EXPLAINED_HIT + (LEAVE_ONE_OUT if call.explain.leave_one_out else 0)
    return cost


def reading_cost(fetched: int, read: int) -> int:
    """The cost of a page's hits, >= 0; it comes on top of that of the search.

    Args:
        fetched: characters of their documents.
        read: characters that were read for snippets.
    """
    return fetched // FETCHED_CHARS + read // READ_CHARS


def texts_cost(count: int, input_type: str, characters: int) -> int:
    """The cost of a request for the embeddings of so many texts of so many characters together, >= 1."""
    return count * TEXTS[input_type] + characters // TEXT_CHARS
