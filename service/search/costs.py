"""Costs of requests, in units of a plain search: the slots in the bulk worker pool, and the tokens of the rate limit.

Costs are integers, estimated from the request before any work; docs/security.md has the table. The length of the hits is
not known before: its cost is charged after they were read.
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
"""Cost per explained hit, which the document encoder reads."""
LEAVE_ONE_OUT = 8
"""Cost of encoding the query without each of its words."""
HIGHLIGHTED_CHARS = 50_000
"""Requested characters of snippets per unit of cost."""
READ_CHARS = 100_000
"""Characters of hits that are read for snippets, per unit of cost."""
FETCHED_CHARS = 2_000_000
"""Characters of fetched documents per unit of cost, also if only parts are returned."""
MOST_READING = 1
"""Largest cost of hits in the search's first worker pool; the remaining hits are read in the bulk pool."""
FILTER_TERMS = 200
"""Conditions, groups and values of a filter per unit of cost."""
RERANKED_HITS: dict[RerankMethod, int] = {"cross-encoder": 20, "late-interaction": 40}
"""Re-ranked hits per unit of cost."""
COMPARED_CANDIDATES = 500
"""Candidates whose tokens a hybrid search compares, per unit of cost."""
TEXTS = {"query": 1, "document": 4}
"""Cost per text of `/v1/embeddings`, by encoder."""
TEXT_CHARS = 10_000
"""Characters of these texts per unit of cost: all their words are counted before the token limit cuts them."""
MOST_PLAIN = 4
"""A search that costs more runs in the bulk worker pool."""


def request_cost(call: SearchCall, filter_terms: int = 0) -> int:
    """The cost of one search, >= 1; an ordinary one, with snippets and a small filter, costs 1.

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
    """The cost of reading hits, >= 0, in addition to the cost of the search.

    Args:
        fetched: characters of their documents.
        read: characters that were read for snippets.
    """
    return fetched // FETCHED_CHARS + read // READ_CHARS


def texts_cost(count: int, input_type: str, characters: int) -> int:
    """The cost of embeddings for a number of texts with a total number of characters, >= 1."""
    return count * TEXTS[input_type] + characters // TEXT_CHARS
