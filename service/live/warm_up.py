"""Warm-up queries of an index, which load code, fill caches and page in the vectors."""

from dataclasses import replace

from glow.errors import QueryError
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import SearchParams
from glow.search import Reranking
from glow.text import Highlighting
from glow_service.search import HighlightCall, SearchCall, SearchSession

__all__ = ["PROBE_TEXT", "probe_call", "warm_up"]

PROBE_TEXT = "how do honey bees find their way home from a distant field"
"""Query for an index without usable texts; about as long as real queries."""
_WORDS = 12


def warm_up(index: Index, queries: int) -> None:
    """Runs queries of stored texts with the search page's features, except explanations.

    Args:
        index: the opened index.
        queries: number of queries, >= 0.
    """
    rows = range(min(queries, index[STORED_FIELDS].count))
    texts = [PROBE_TEXT] * (queries - len(rows))
    for document in index[STORED_FIELDS].rows(list(rows)) if rows else []:
        values = [text for texts_of_field in document.fields.values() for text in texts_of_field]
        texts.append(" ".join(values[0].split()[:_WORDS]) if values else PROBE_TEXT)
    for text in texts:
        try:
            SearchSession(index, probe_call(text)).run()
            SearchSession(index, _full_call(index, text)).run()
        except QueryError:  # a stored text without a word
            continue


def probe_call(text: str) -> SearchCall:
    """A minimal search for a text."""
    return SearchCall(text, top_k=10, offset=0, candidates=10, params=SearchParams())


def _full_call(index: Index, text: str) -> SearchCall:
    """A search with snippets, re-ranking and hybrid retrieval, if the index supports them."""
    highlight = HighlightCall(index.preprocessor.schema.names, Highlighting())
    call = replace(probe_call(text), highlight=highlight)
    if index.reranker is not None:
        call = replace(call, rerank=Reranking(depth=call.candidates))
    return call if not index.holds(POSTINGS) else replace(call, retriever="hybrid")
