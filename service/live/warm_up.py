"""First queries of an index: they load code, fill caches and page in the vectors, before a client waits for that."""

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
"""Where the index holds no usable text; about as long as real queries are."""
_WORDS = 12


def warm_up(index: Index, queries: int) -> None:
    """Runs queries made of stored texts, by all that the search page asks for but explanations.

    Args:
        index: just opened.
        queries: how many, >= 0.
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
        except QueryError:  # a stored text without a word is no query, and no reason not to start
            continue


def probe_call(text: str) -> SearchCall:
    """The plainest search for a text."""
    return SearchCall(text, top_k=10, offset=0, candidates=10, params=SearchParams())


def _full_call(index: Index, text: str) -> SearchCall:
    """The towers that explain are opened by the first request that asks for it."""
    highlight = HighlightCall(index.preprocessor.schema.names, Highlighting())
    call = replace(probe_call(text), highlight=highlight)
    if index.reranker is not None:
        call = replace(call, rerank=Reranking(depth=call.candidates))
    return call if not index.holds(POSTINGS) else replace(call, retriever="hybrid")
