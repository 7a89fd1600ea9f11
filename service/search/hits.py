"""A hit as it is shown: its snippets, and of its document no more than was asked for."""

from collections.abc import Callable, Collection

from glow.records import Document
from glow.search import FoundPassage, Index, pick
from glow.text import Highlighter, markup
from glow_service.search.calls import HighlightCall, SearchCall

__all__ = ["Highlight", "highlight_with", "passage_document", "shown_part"]

Highlight = Callable[[Document, Collection[str]], dict[str, list[str]]]
"""A document and further words to mark -> snippets by field."""


def passage_document(document: Document, passage: FoundPassage | None) -> Document:
    """What the document tower read: the document, or with a passage in place of the body it was cut from."""
    if passage is None:
        return document
    return Document(document.id, {**document.fields, passage.field: (passage.text,)}, document.metadata)


def shown_part(document: Document, call: SearchCall) -> Document:
    """A document with the fields and metadata that a call asks for; what is not shown need not be kept in memory."""
    if call.fields is None and call.metadata is None:
        return document
    fields, metadata = document.fields, document.metadata
    if call.fields is not None:
        fields = {name: fields[name] for name in call.fields if name in fields}
    if call.metadata is not None:
        metadata = pick(metadata, frozenset(call.metadata))
    return Document(document.id, fields, metadata)


def highlight_with(index: Index, text: str, asked: HighlightCall) -> Highlight:
    """What makes the snippets of each hit, as HTML, without fields that it lacks.

    Args:
        index: whose words and idf decide.
        text: the query, whose words are marked.
        asked: fields and how much to show.
    """
    highlighter = Highlighter(index.preprocessor, index.analyzer)

    def highlight(document: Document, attended: Collection[str]) -> dict[str, list[str]]:
        fragments = highlighter.document(document, text, asked.fields, attended, asked.options)
        return {name: [markup(fragment) for fragment in each] for name, each in fragments.items()}

    return highlight
