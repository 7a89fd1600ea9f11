"""Hits as they are shown: their snippets, and of their documents no more than was asked for.

A page is read a few documents at a time. It stops on the way if that is much work, and goes on where it is told to.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glow.index import Index
from glow.index.columns import pick
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.passages import PASSAGES, FoundPassage
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from glow.search import Meaning, RankedDocuments
from glow.text import Highlighter, ReadText, markup
from glow_service.search.answer_size import AnswerSize
from glow_service.search.calls import FoundDocument, HighlightCall, SearchCall
from glow_service.search.clock import StageClock
from glow_service.search.costs import reading_cost
from glow_service.search.explanations import Explanations

__all__ = [
    "MOST_READ", "Causes", "LongHitsError", "PageReader", "RankedHit", "causes_with", "documents_of", "page_of", "passage_document", "shown_part",
]  # fmt: skip

Causes = Callable[[int, Document], Mapping[str, str]]
"""A document's row and text -> word of the query, which it does not hold -> the word of its own that it counts for."""
READING_RESERVE_S = 0.005
"""Time that is left for the rest of a page, without which words are not looked for by meaning."""
MOST_READ = 1_000_000
"""Characters of all hits of a response that are read for snippets."""
FETCHED_FIRST, FETCHED_AT_ONCE = 3, 10
"""Documents that are read together; while they are looked at, no more of them are in memory. The first few tell how long they are."""


class RankedHit(NamedTuple):
    """A hit before its document is read."""

    row: int
    score: float
    parts: dict[str, float]
    passage: int | None


def page_of(call: SearchCall, ranked: RankedDocuments) -> list[RankedHit]:
    """The hits that are returned."""
    page = slice(call.offset, call.offset + call.top_k)
    rows, scores = ranked.rows[page].tolist(), ranked.scores[page].tolist()
    parts = {name: values[page].tolist() for name, values in ranked.parts.items()}
    hits = []
    for place, (row, score) in enumerate(zip(rows, scores, strict=True)):
        # NaN, the one number that is not itself, stands for a score that is not known.
        known = {name: values[place] for name, values in parts.items() if values[place] == values[place]}
        hits.append(RankedHit(row, score, known, ranked.passages.get(row)))
    return hits


def rows_of(page: Sequence[RankedHit]) -> tuple[NDArray[np.int64], dict[int, int]]:
    """The hits' rows, int64 [m], and row -> row of the best passage, of those whose passage the search found."""
    known = {hit.row: hit.passage for hit in page if hit.passage is not None}
    return np.array([hit.row for hit in page], np.int64), known


def documents_of(
    index: Index, page: Sequence[RankedHit]
) -> Iterator[tuple[RankedHit, Document, FoundPassage | None]]:
    """Each hit with its whole document and its best passage."""
    for start in (0, *range(FETCHED_FIRST, len(page), FETCHED_AT_ONCE)):
        hits = page[start : start + FETCHED_AT_ONCE] if start else page[:FETCHED_FIRST]
        for hit, document in zip(hits, index[STORED_FIELDS].rows([hit.row for hit in hits]), strict=True):
            passage = None
            if index.holds(PASSAGES) and hit.passage is not None:
                passage = index[PASSAGES].passage_of(document, hit.passage)
            yield hit, document, passage


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


def causes_with(index: Index, call: SearchCall, text: str) -> Causes:
    """What tells why documents count for words that they do not hold; nothing where that is not asked for, or cannot be.

    Args:
        index: whose learned impacts decide.
        call: asks for snippets or reasons, of a search in which learned impacts have a part.
        text: the query.
    """
    is_asked = (call.highlight is not None or call.explain is not None) and call.source == "text"
    if not index.holds(LEARNED_SPARSE) or not is_asked or call.retriever not in ("learned", "hybrid"):
        return lambda row, document: {}
    learned, words = index[LEARNED_SPARSE], index.preprocessor.pieces.words(text)

    def causes(row: int, document: Document) -> Mapping[str, str]:
        found = learned.expansions(words, row)
        places = {
            word: each.cause for word, each in found.items() if each.cause is not None and not each.bm25
        }
        if not places:
            return {}
        own = index.preprocessor.document(document).words
        return {word: own[place] for word, place in places.items() if place < len(own)}

    return causes


class Snippets:
    """Makes the snippets of each hit of a page, as HTML.

    Args:
        index: whose words and idf decide.
        text: the query, whose words are marked.
        asked: fields and how much to show.
        hits: of the whole page; each has an equal part of `MOST_READ`, whatever the others need.

    Attributes:
        share: most characters of a hit that are read.
        read: characters that were read of all hits so far.
    """

    def __init__(self, index: Index, text: str, asked: HighlightCall, hits: int) -> None:
        self._highlighter = Highlighter(index.preprocessor, index.analyzer)
        self._text, self._asked = text, asked
        self.share = MOST_READ // max(hits, 1)
        self.read = 0

    def of(
        self, document: Document, attended: Collection[str], read: ReadText | None = None
    ) -> dict[str, list[str]]:
        """Snippets by field, without fields that the document lacks.

        Args:
            document: the hit.
            attended: further words to mark.
            read: what the tower read of it, if words are to be found by meaning too.
        """
        asked = self._asked
        self.read += min(self._highlighter.characters(document, asked.fields), self.share)
        fragments = self._highlighter.document(
            document, self._text, asked.fields, attended, asked.options, self.share, read
        )
        return {name: [markup(fragment) for fragment in each] for name, each in fragments.items()}


class LongHitsError(Exception):
    """The hits are too long to be read where the search began; it keeps what it has, and is to go on elsewhere."""


class PageReader:
    """The hits of one page; of each document only what is shown is kept.

    Args:
        index: that was searched.
        call: what is shown.
        text: the query as it was searched.
        page: the hits.
        explanations: of each of them, if they are asked for.
        clock: told about both stages.
        meaning: of the hits' words, if their tokens were compared.

    Attributes:
        left_out: `snippets` if time was too short for meaning; as `SearchAnswer` has it.
    """

    def __init__(
        self,
        index: Index,
        call: SearchCall,
        text: str,
        page: Sequence[RankedHit],
        explanations: Explanations | None,
        clock: StageClock,
        meaning: Meaning | None = None,
    ) -> None:
        self.left_out: tuple[str, ...] = ()
        self._meaning = meaning
        self._call, self._clock, self._explanations = call, clock, explanations
        self._snippets = None if call.highlight is None else Snippets(index, text, call.highlight, len(page))
        self._causes = causes_with(index, call, text)
        self._size = AnswerSize(call.max_bytes, len(page), may_cut=call.may_cut)
        self._coming = enumerate(documents_of(index, page))
        self._hits = len(page)
        self._fetched = 0

    @property
    def cost(self) -> int:
        """What the hits cost so far, >= 0."""
        return reading_cost(self._fetched, 0 if self._snippets is None else self._snippets.read)

    @property
    def price_left(self) -> int:
        """What those that are left may cost, if they are like the others, >= 1."""
        done = max(len(self._size.found), 1)
        return max(-(-self.cost * (self._hits - done) // done), 1)

    def run(self, most: int | None = None) -> tuple[FoundDocument, ...]:
        """Every hit of the page.

        Args:
            most: cost after which hits are left for another call, >= 1; None: all are read.

        Raises:
            LongHitsError: if hits are left.
            AnswerTooLargeError: if they do not fit, and must not be cut.
            DeadlineError: if the deadline passes, or the client leaves.
        """
        clock, explanations = self._clock, self._explanations
        is_over = clock.has_no_time_for_another(READING_RESERVE_S)
        for place, (at, document, passage) in self._coming:
            snippets, because = None, self._causes(at.row, document)
            if self._snippets is not None:
                clock.switch("fetch")
                attended = explanations.documents[place].attended_words() if explanations else ()
                if self._meaning is not None and is_over():
                    self._meaning, self.left_out = None, ("snippets",)
                read = None if self._meaning is None else self._meaning.of(place, document)
                snippets = self._snippets.of(document, {*attended, *because.values()}, read)
                clock.switch("highlight")
                clock.check()
            shown = shown_part(document, self._call)
            self._size.add(FoundDocument(at.score, at.row, at.parts, shown, passage, (), snippets, because))
            self._fetched += sum(len(value) for values in document.fields.values() for value in values)
            if most is not None and self.cost >= most and place + 1 < self._hits:
                raise LongHitsError
        clock.switch("fetch")
        clock.check()
        return tuple(self._size.found)
