"""Snippets: stretches of a field with the query's words, cut at word ends, with those words marked.

Words match regardless of case, accents and script, as in preprocessing, and by stems if the index uses them. The best stretch of a
long text begins with a sentence. The stretches are chosen by idf (`glow.text.spans`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

from glow.errors import ConfigError
from glow.records import Document
from glow.schema import FieldSpec
from glow.text.analyzer import Analyzer, searched_words
from glow.text.passages import sentence_spans
from glow.text.preprocessor import Preprocessor
from glow.text.spans import TermFilter, TermSpans, Window, WordSpans, best_windows, trim


def from_its_sentence(text: str, window: Window, others: Sequence[Window], width: int) -> Window:
    """Moves a window of a text to the start of its first word's sentence, if all its words still fit without overlap."""
    least = max(window.last - width, *(other.end for other in others if other.end <= window.start), 0)
    if window.start <= 0 or least > window.first:
        return window
    sentences = sentence_spans(text[least : window.first + 1])
    if least:  # the window would begin with the rest of a sentence
        del sentences[:1]
    if not sentences:
        return window
    start = least + sentences[-1][0]
    most = min((other.start for other in others if other.start >= window.last), default=len(text))
    return replace(window, start=start, end=min(start + width, most))


Mark = Literal["", "query", "attended"]
SEARCHED_CHARACTERS = 100_000
"""Characters of a field to read; the rest is ignored, so that one long text cannot delay a response."""
# A word below this fraction of the highest idf tells little: `the` among rare words stays unmarked.
LEAST_SHARE = 0.2
# Only ranks attended words, if no word of the query is found.
LEAST_WORTH = 1e-6
_TAGS = {"query": "<em>", "attended": '<em class="attended">'}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SPECIAL = re.compile("[&<>\"'\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Highlighting:
    """Size of the output."""

    fragments: int = 2  # most snippets of a field, >= 1
    fragment_chars: int = 200  # most characters of a snippet, >= 20, unless a word is longer

    def __post_init__(self) -> None:
        if self.fragments < 1 or self.fragment_chars < 20:
            raise ConfigError(
                f"highlighting needs fragments >= 1 and fragment_chars >= 20, found {self.fragments} and "
                f"{self.fragment_chars}"
            )


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of a text."""

    parts: tuple[tuple[str, Mark], ...]  # its characters, unchanged, in pieces with their marks
    cut_before: bool  # whether there is more text on that side
    cut_after: bool


class Highlighter:
    """Finds and marks the words of a query in documents of an index; cheap to create, safe to use from many threads.

    Words that the index's analyzer maps to the same term are marked alike.
    """

    def __init__(self, preprocessor: Preprocessor, analyzer: Analyzer | None = None) -> None:
        self._analyzer = analyzer or Analyzer()
        self._preprocessor = preprocessor
        self._spans = WordSpans(preprocessor.pieces)
        # All hits of a page have the same query.
        self._last: tuple[str, dict[str, float], TermFilter] = ("", {}, TermFilter(self._analyzer, set()))
        self._specs = {spec.name: spec for spec in preprocessor.schema.fields}

    def query_terms(self, query: str) -> dict[str, float]:
        """The terms to mark, with idf: no punctuation, no stop words beside others, no words much commoner than the rest."""
        return self._prepared(query)[1]

    def _prepared(self, query: str) -> tuple[str, dict[str, float], TermFilter]:
        """A query, its terms with idf, and the filter of their words."""
        prepared = self._last  # another thread may replace it
        if prepared[0] != query:
            words = searched_words(self._preprocessor.pieces.whole_words(query))
            idf = {word: self._preprocessor.weigher.idf(word) for word in words}
            least = LEAST_SHARE * max(idf.values(), default=0.0)
            terms: dict[str, float] = {}
            for word, value in idf.items():
                if value >= least:
                    term = self._analyzer.term(word)
                    terms[term] = max(value, terms.get(term, 0.0))
            self._last = prepared = query, terms, TermFilter(self._analyzer, terms.keys())
        return prepared

    def document(
        self,
        document: Document,
        query: str,
        fields: Sequence[str] | None = None,  # None: all text fields of the schema
        attended: Collection[str] = (),  # more words to mark: those with most attention of the document tower
        options: Highlighting | None = None,
        most: int | None = None,  # characters to read in all fields, >= 0, shorter fields first
    ) -> dict[str, list[Fragment]]:
        """Field -> its fragments in order, of a document or a passage; fields that it lacks are left out."""
        _, terms, words = self._prepared(query)
        if further := set(map(self._analyzer.term, attended)) - terms.keys():
            words = TermFilter(self._analyzer, terms.keys() | further)
        texts = {}
        for name in self._specs if fields is None else fields:
            values = [value for value in document.fields.get(name, ()) if value.strip()]
            if values:
                texts[name] = values
        left = self.characters(document, list(texts)) if most is None else most
        fragments = {}
        for name in sorted(texts, key=lambda name: sum(map(len, texts[name]))):
            allowed = min(left, SEARCHED_CHARACTERS)
            fragments[name] = self._field(texts[name], terms, words, options, self._specs.get(name), allowed)
            left -= min(allowed, sum(map(len, texts[name])))
        return {name: fragments[name] for name in texts}

    def characters(self, document: Document, fields: Sequence[str]) -> int:
        """Number of characters that `document` reads in some fields without a further limit, >= 0."""
        lengths = (sum(map(len, document.fields.get(name, ()))) for name in fields)
        return sum(min(length, SEARCHED_CHARACTERS) for length in lengths)

    def _field(
        self,
        values: Sequence[str],
        terms: Mapping[str, float],  # term -> worth
        words: TermFilter,
        options: Highlighting | None,
        spec: FieldSpec | None,  # None for plain text
        most: int,
    ) -> list[Fragment]:
        """Fragments of one field, as `document`: stretches of its only value, or one of each of the best values.

        If no word is found, the start of its first value. Terms of `words` beyond `terms` only matter if none of those is found.
        """
        options = options or Highlighting()
        width = options.fragment_chars
        each = options.fragments if len(values) == 1 else 1
        left, fragments = most, list[tuple[Window, int, TermSpans | None]]()
        for place, value in enumerate(values):
            if not left:
                break
            spans = TermSpans(self._spans, value[:left], spec, words)
            if spans.terms and len(values) == 1 and len(value) <= min(left, width):
                return [self._fragment(value, Window(0.0, 0, len(value), 0, len(value)), spans, terms)]
            left = max(left - len(value), 0)
            deciding = (spans.terms & terms.keys()) or spans.terms
            worth = {term: terms.get(term, 0.0) or LEAST_WORTH for term in deciding}
            windows = best_windows(spans, worth, each, width, len(value))
            if windows and len(values) == 1:
                windows[0] = from_its_sentence(value, windows[0], windows[1:], width)
            fragments += [(window, place, spans) for window in windows]
        if not fragments and values:
            start = len(values[0]) - len(values[0].lstrip())
            head = Window(0.0, start, min(start + width, len(values[0])), start, start)
            fragments = [(head, 0, None)]
        best = sorted(fragments, key=lambda item: -item[0].worth)[: options.fragments]
        best.sort(key=lambda item: (item[1], item[0].start))
        return [self._fragment(values[place], window, spans, terms) for window, place, spans in best]

    def _fragment(
        self, text: str, window: Window, spans: TermSpans | None, terms: Mapping[str, float]
    ) -> Fragment:
        start, end = trim(text, window, self._spans)
        parts: list[tuple[str, Mark]] = []
        place = start
        for span in spans.within(start, end) if spans else ():
            parts.append((text[place : span.start], ""))
            parts.append((text[span.start : span.end], "query" if span.word in terms else "attended"))
            place = span.end
        parts.append((text[place:end], ""))
        filled = tuple((part, mark) for part, mark in parts if part)
        return Fragment(filled, bool(text[:start].strip()), bool(text[end:].strip()))


def markup(fragment: Fragment) -> str:
    """A fragment as HTML: escaped, its words in `<em>` or `<em class="attended">`, an ellipsis where text is cut."""
    text = "".join(
        f"{_TAGS[mark]}{_escaped(part)}</em>" if mark else _escaped(part) for part, mark in fragment.parts
    )
    return f"{'… ' if fragment.cut_before else ''}{text}{' …' if fragment.cut_after else ''}"


def _escaped(text: str) -> str:
    if _SPECIAL.search(text) is None:
        return text
    # JSON in UTF-8 cannot hold a lone surrogate.
    return escape(_LONE_SURROGATE.sub("\ufffd", text))
