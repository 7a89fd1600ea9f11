"""What is said of hits beside their scores: snippets of their fields."""

from collections.abc import Callable, Mapping, Sequence

from glow.records import Document
from glow.search import FoundPassage, Index
from glow.text import Highlighter, Highlighting, markup
from glow_service.search.explanations import Explanations

__all__ = ["highlight_hits", "passage_document"]


def passage_document(document: Document, passage: FoundPassage | None) -> Document:
    """What the document tower read: the document, or with a passage in place of the body it was cut from."""
    if passage is None:
        return document
    return Document(document.id, {**document.fields, passage.field: (passage.text,)}, document.metadata)


def highlight_hits(
    index: Index,
    text: str,
    documents: Sequence[Document],
    fields: Sequence[str],
    options: Highlighting,
    explanations: Explanations | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[Mapping[str, list[str]], ...]:
    """Snippets of each hit.

    Args:
        index: whose words and idf decide.
        text: the query, whose words are marked.
        documents: hits, whole.
        fields: to look into.
        options: how much to show.
        explanations: where they are known, each document's most attended words are marked as well.
        check: called before every hit; what it raises ends the work.

    Returns:
        For each document field -> snippets as HTML, without fields that it lacks.
    """
    highlighter = Highlighter(index.preprocessor)
    highlights = []
    for place, document in enumerate(documents):
        check()
        attended = explanations.documents[place].attended_words() if explanations else ()
        fragments = highlighter.document(document, text, fields, attended, options)
        highlights.append({name: [markup(fragment) for fragment in each] for name, each in fragments.items()})
    return tuple(highlights)
