"""The returned hits: reads their documents, cuts snippets, and keeps only the requested fields.

A page is read a few documents at a time. If that is much work, reading stops, and continues as an expensive request.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from glow.contract import Hit, Passage
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.passages import PASSAGES, FoundPassage
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from glow.search import NO_OTHERS, Others, RankedDocuments
from glow.text import Highlighter, LexicalFields, markup
from glow_service.errors import AnswerTooLargeError
from glow_service.search.clock import StageClock
from glow_service.search.explanations import Explanations
from glow_service.search.plan import HighlightCall, SearchPlan
from glow_service.search.render import HitMaker, RankedHit

METADATA, HIGHLIGHTS = "metadata", "highlights"
"""Names in `truncated` of omitted metadata and snippets."""
_LEAST_CUT = 40
"""Fewest bytes of a cut field; below this, it is omitted."""


class AnswerSize:
    """Collects the hits of one response: whole while all fit, otherwise each cut to an equal part.

    The size of a hit is that of its fields, metadata and snippets as JSON, measured as it is fetched.
    """

    def __init__(self, most: int, hits: int, *, may_cut: bool) -> None:
        self._most, self._count, self._may_cut = most, hits, may_cut
        self._used, self._is_full = 0, False
        self.hits: list[Hit] = []

    def add(self, hit: Hit) -> None:
        """Adds the next hit."""
        if not self._most:
            self.hits.append(hit)
            return
        if not self._is_full:
            self.hits.append(hit)
            self._used += _size_of(hit)
            if self._used <= self._most:
                return
            if not self._may_cut:
                raise self._too_large(hit)
            whole, self.hits = self.hits, []
            self._used, self._is_full = 0, True
            for each in whole:
                self._add_cut(each)
            return
        self._add_cut(hit)

    def _add_cut(self, hit: Hit) -> None:
        """Adds a hit, cut to its part; bytes that a smaller hit does not need go to later ones."""
        part = (self._most - self._used) // max(self._count - len(self.hits), 1)
        shown = _cut(hit, part) if _size_of(hit) > part else hit
        self.hits.append(shown)
        self._used = min(self._used + _size_of(shown), self._most)

    def _too_large(self, hit: Hit) -> AnswerTooLargeError:
        sizes = {**_sizes(hit), HIGHLIGHTS: _size(hit.highlights)}
        part = max(sizes, key=sizes.__getitem__)
        fitting = len(self.hits) - 1
        fewer = f"fewer hits (top_k {fitting} fits), or " if fitting else ""
        return AnswerTooLargeError(
            f"the response exceeds {self._most} bytes at hit {len(self.hits)} of {self._count}; request "
            f"{fewer}fewer fields ({part} is the largest part of that hit), or remove allow_truncated"
        )


def _size_of(hit: Hit) -> int:
    return _size((hit.fields, hit.metadata, hit.highlights))


def _sizes(hit: Hit) -> dict[str, int]:
    return {**{name: _size(value) for name, value in hit.fields.items()}, METADATA: _size(hit.metadata)}


def _cut(hit: Hit, limit: int) -> Hit:
    """Cuts a hit: keeps snippets and metadata each whole or not at all, then fields in order, the last one cut."""
    truncated, highlights, metadata = [], hit.highlights, hit.metadata
    if highlights and _size(highlights) > limit:
        truncated.append(HIGHLIGHTS)
        highlights = {}
    sizes, used = _sizes(hit), _size(highlights)
    if metadata and sizes[METADATA] > limit - used:
        metadata = {}
        truncated.append(METADATA)
    else:
        used += sizes[METADATA]
    fields = {}
    for name, value in hit.fields.items():
        shown: str | tuple[str, ...] = value
        size = sizes[name]
        if used + size > limit:
            truncated.append(name)
            shown, size = _shorter(value, limit - used)
        if shown:
            fields[name] = shown
            used += size
    return replace(hit, fields=fields, metadata=metadata, highlights=highlights, truncated=tuple(truncated))


def _shorter(value: str | tuple[str, ...], limit: int) -> tuple[str | tuple[str, ...], int]:
    """A field of at most `limit` bytes: its first values, the last one cut."""
    if isinstance(value, str):
        return _shorter_text(value, limit)
    texts: list[str] = []
    used = 0
    for each in value:
        shown, size = _shorter_text(each, limit - used)
        if shown:
            texts.append(shown)
            used += size
        if shown != each:
            break
    return tuple(texts), used


def _shorter_text(text: str, limit: int) -> tuple[str, int]:
    """The beginning of a text, and its bytes; "" if too little of it fits."""
    size = _size(text)
    while size > limit >= _LEAST_CUT:
        # Bytes and characters differ because of JSON escapes and UTF-8; this text's ratio is a good estimate.
        text = text[: max(limit * len(text) // size - 1, 0)]
        size = _size(text)
    return (text, size) if size <= limit else ("", 0)


def _size(value: Any) -> int:
    return len(orjson.dumps(value))


Causes = Callable[[int, Document], Mapping[str, str]]
"""Function of a document's row and text: query word that it lacks -> its own related word."""
MOST_READ = 1_000_000
"""Most characters of all hits of a response that are read for snippets."""
LONG_PAGE, LONG_SNIPPETS = 2_000_000, 100_000
"""Characters of documents after which a page is long, without and with snippets: its rest holds up plain searches."""
FETCHED_FIRST, FETCHED_AT_ONCE = 3, 10
"""Documents that are fetched at once, which limits memory; the first, small group shows how long documents are."""


def page_of(plan: SearchPlan, ranked: RankedDocuments) -> list[RankedHit]:
    """The hits of the requested page."""
    page = slice(plan.offset, plan.offset + plan.top_k)
    rows, scores = ranked.rows[page].tolist(), ranked.scores[page].tolist()
    parts = {name: values[page].tolist() for name, values in ranked.parts.items()}
    hits = []
    for place, (row, score) in enumerate(zip(rows, scores, strict=True)):
        # NaN, which differs from itself, means an unknown score.
        known = {name: values[place] for name, values in parts.items() if values[place] == values[place]}
        hits.append(RankedHit(row, score, known, ranked.passages.get(row)))
    return hits


def documents_of(
    index: Index, page: Sequence[RankedHit]
) -> Iterator[tuple[RankedHit, Document, FoundPassage | None]]:
    """Yields each hit with its whole document and its best passage."""
    for start in (0, *range(FETCHED_FIRST, len(page), FETCHED_AT_ONCE)):
        hits = page[start : start + FETCHED_AT_ONCE] if start else page[:FETCHED_FIRST]
        for hit, document in zip(hits, index[STORED_FIELDS].rows([hit.row for hit in hits]), strict=True):
            passage = None
            if index.holds(PASSAGES) and hit.passage is not None:
                passage = index[PASSAGES].passage_of(document, hit.passage)
            yield hit, document, passage


def passage_document(document: Document, passage: FoundPassage | Passage | None) -> Document:
    """The document encoder's input: the document, or one with the passage in place of its body."""
    if passage is None:
        return document
    return Document(document.id, {**document.fields, passage.field: (passage.text,)}, document.metadata)


def causes_with(index: Index, plan: SearchPlan, text: str) -> Causes:
    """A function that gives the related words of a document, if snippets or explanations need them; otherwise none."""
    is_asked = (plan.highlight is not None or plan.explain) and plan.source == "text"
    if not index.holds(LEARNED_SPARSE) or not is_asked or plan.retriever not in ("learned-sparse", "hybrid"):
        return lambda row, document: {}
    learned, words = index[LEARNED_SPARSE], index.preprocessor.pieces.words(text)

    def causes(row: int, document: Document) -> Mapping[str, str]:
        expansions = learned.expansions(words, row).items()
        places = {word: each.cause for word, each in expansions if each.cause is not None and not each.bm25}
        if not places:
            return {}
        own = index.preprocessor.document(document).words
        return {word: own[place] for word, place in places.items() if place < len(own)}

    return causes


class Snippets:
    """Makes the HTML snippets of the hits of a page."""

    def __init__(self, index: Index, text: str, call: HighlightCall, hits: int) -> None:
        self._highlighter = Highlighter(index.preprocessor, index.analyzer)
        self._text, self._call = text, call
        self._own = index.base[POSTINGS].header.fields if index.holds(POSTINGS) else LexicalFields()
        self._schema = index.preprocessor.schema
        self.share = MOST_READ // max(hits, 1)

    def of(self, document: Document, attended: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Snippets by field, without fields that the document lacks."""
        call = self._call
        names = [name for name in call.fields if name in self._own.text]
        own = {name: tuple(self._own.texts(document, self._schema, name)) for name in names}
        document = Document(document.id, {**document.fields, **own}) if own else document
        fragments = self._highlighter.document(
            document, self._text, call.fields, attended, call.options, self.share
        )
        return {name: tuple(map(markup, each)) for name, each in fragments.items()}


class LongHitsError(Exception):
    """The page is long; the search keeps its results, and must continue as an expensive request."""


class PageReader:
    """Reads the hits of one page; keeps only the requested parts of each document."""

    def __init__(
        self,
        index: Index,  # the searched index
        plan: SearchPlan,
        text: str,  # the query with its typos corrected
        page: Sequence[RankedHit],
        explanations: Explanations | None,  # explanations of the hits, if requested
        clock: StageClock,  # measures the stages `fetch` and `highlight`
        others: Others = NO_OTHERS,  # what else counts as a word of the query
    ) -> None:
        self._clock, self._explanations = clock, explanations
        self._maker = HitMaker(index, plan, text, explanations, others)
        self._snippets = None
        if plan.highlight is not None:
            marked = " ".join([text, *(word for each in others.values() for other in each for word in other)])
            self._snippets = Snippets(index, marked, plan.highlight, len(page))
        self._causes = causes_with(index, plan, text)
        self._size = AnswerSize(plan.max_bytes, len(page), may_cut=plan.may_cut)
        self._coming = enumerate(documents_of(index, page))
        self._hits = len(page)
        self._fetched, self._long = 0, LONG_PAGE if plan.highlight is None else LONG_SNIPPETS

    def run(self, *, may_move: bool) -> tuple[Hit, ...]:
        """Reads the hits; if `may_move`, a long page raises `LongHitsError`, and another call reads its rest."""
        clock, explanations = self._clock, self._explanations
        for place, (at, document, passage) in self._coming:
            snippets, because = None, self._causes(at.row, document)
            if self._snippets is not None:
                clock.switch("fetch")
                attended = explanations.documents[place].attended_words() if explanations else ()
                snippets = self._snippets.of(document, {*attended, *because.values()})
                clock.switch("highlight")
                clock.check()
            self._size.add(self._maker.hit(place, at, document, passage, snippets, because))
            self._fetched += sum(len(value) for values in document.fields.values() for value in values)
            if may_move and self._fetched > self._long and place + 1 < self._hits:
                raise LongHitsError
        clock.switch("fetch")
        clock.check()
        return tuple(self._size.hits)
