"""Snippets: the stretches of a field that hold the query's words, cut at word ends, with those words marked.

Words are found as preprocessing sees them, whatever their case, accents and script, and by their stems where the index holds
those. Which stretches are shown is decided by idf (`glow.text.windows`).
"""

import re
from collections.abc import Collection, Container, Mapping, Sequence, Set
from dataclasses import dataclass
from html import escape
from typing import Literal

from glow.errors import ConfigError
from glow.records import Document
from glow.schema import FieldSpec
from glow.text.analyzer import Analyzer
from glow.text.preprocessor import Preprocessor
from glow.text.spans import Span, WordSpans
from glow.text.windows import Window, best_windows, trim
from glow.text.words import is_punctuation

__all__ = ["Fragment", "Highlighter", "Highlighting", "Mark", "markup"]

Mark = Literal["", "query", "attended"]
SEARCHED_CHARACTERS = 100_000
"""Of a field; what comes after is not looked at, so that one long text cannot hold up an answer."""
# A word under this share of the highest idf says nothing beside the others: `the` among rare words stays unmarked.
LEAST_SHARE = 0.2
# Decides only among attended words, where no word of the query is found.
LEAST_WORTH = 1e-6
_TAGS = {"query": "<em>", "attended": '<em class="attended">'}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Highlighting:
    """How much to show.

    Attributes:
        fragments: most snippets of a field, >= 1.
        fragment_chars: most characters of a snippet, >= 20, markup not counted; a single longer word is kept whole.
    """

    fragments: int = 2
    fragment_chars: int = 200

    def __post_init__(self) -> None:
        if self.fragments < 1 or self.fragment_chars < 20:
            raise ConfigError(
                f"highlighting needs fragments >= 1 and fragment_chars >= 20, found {self.fragments} and "
                f"{self.fragment_chars}"
            )


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of a text.

    Attributes:
        parts: its characters as they are, each part with its mark; joined they are the stretch.
        cut_before, cut_after: whether there is more text on that side.
    """

    parts: tuple[tuple[str, Mark], ...]
    cut_before: bool
    cut_after: bool


class Highlighter:
    """Finds and marks the words of a query in documents; cheap to make, safe to use from many threads.

    Args:
        preprocessor: of the index: its words, fields and idf.
        analyzer: of the index: words of one term are marked alike.
    """

    def __init__(self, preprocessor: Preprocessor, analyzer: Analyzer | None = None) -> None:
        self._analyzer = analyzer or Analyzer()
        self._preprocessor = preprocessor
        self._spans = WordSpans(preprocessor.pieces)
        self._specs = {spec.name: spec for spec in preprocessor.schema.fields}

    def query_terms(self, query: str) -> dict[str, float]:
        """Terms of the query's words that are marked, with idf: no punctuation, and nothing far commoner than the rest."""
        words = dict.fromkeys(self._preprocessor.pieces.whole_words(query))
        idf = {word: self._preprocessor.weigher.idf(word) for word in words if not is_punctuation(word)}
        least = LEAST_SHARE * max(idf.values(), default=0.0)
        terms: dict[str, float] = {}
        for word, value in idf.items():
            if value >= least:
                term = self._analyzer.term(word)
                terms[term] = max(value, terms.get(term, 0.0))
        return terms

    def document(
        self,
        document: Document,
        query: str,
        fields: Sequence[str] | None = None,
        attended: Collection[str] = (),
        options: Highlighting | None = None,
    ) -> dict[str, list[Fragment]]:
        """Fragments of a document's fields.

        Args:
            document: or a passage, as a document of its own.
            query: its words are marked.
            fields: names; None for all text fields of the schema.
            attended: further words to mark, those that the document tower attended most.
            options: how much to show.

        Returns:
            Field -> fragments in order; without those that the document lacks.
        """
        options, terms = options or Highlighting(), self.query_terms(query)
        fragments = {}
        for name in self._specs if fields is None else fields:
            values = [value for value in document.fields.get(name, ()) if value.strip()]
            if values:
                fragments[name] = self.field(values, terms, attended, options, self._specs.get(name))
        return fragments

    def field(
        self,
        values: Sequence[str],
        terms: Mapping[str, float],
        attended: Collection[str] = (),
        options: Highlighting | None = None,
        spec: FieldSpec | None = None,
    ) -> list[Fragment]:
        """Fragments of one field; where no word is found, the head of its first value.

        Args:
            values: one: up to `fragments` stretches of it. Several: one stretch of each of the best values.
            terms: term -> worth, as `query_terms` yields them.
            attended: further words to mark; they decide only where no word of `terms` is found.
            options: how much to show.
            spec: of the field, if it is no plain text.
        """
        options = options or Highlighting()
        each = options.fragments if len(values) == 1 else 1
        left, fragments = SEARCHED_CHARACTERS, []
        marked = _WordsOf(self._analyzer, {*terms, *map(self._analyzer.term, attended)})
        for place, value in enumerate(values):
            spans = [
                span._replace(word=self._analyzer.term(span.word))
                for span in self._spans.of_field(value[:left], spec, marked)
            ]
            left = max(left - len(value), 0)
            deciding = [span for span in spans if span.word in terms] or spans
            worth = {span.word: terms.get(span.word, 0.0) or LEAST_WORTH for span in deciding}
            windows = best_windows(deciding, worth, each, options.fragment_chars, len(value))
            fragments += [(window, place, spans) for window in windows]
        if not fragments and values:
            fragments = [(_head(values[0], options.fragment_chars), 0, [])]
        best = sorted(fragments, key=lambda item: -item[0].worth)[: options.fragments]
        best.sort(key=lambda item: (item[1], item[0].start))
        return [self._fragment(values[place], window, spans, terms) for window, place, spans in best]

    def _fragment(
        self, text: str, window: Window, spans: Sequence[Span], terms: Mapping[str, float]
    ) -> Fragment:
        start, end = trim(text, window, self._spans)
        parts: list[tuple[str, Mark]] = []
        place = start
        for span in spans:
            if start <= span.start and span.end <= end:
                parts.append((text[place : span.start], ""))
                parts.append((text[span.start : span.end], "query" if span.word in terms else "attended"))
                place = span.end
        parts.append((text[place:end], ""))
        kept = tuple((part, mark) for part, mark in parts if part)
        return Fragment(kept, bool(text[:start].strip()), bool(text[end:].strip()))


class _WordsOf(Container[str]):
    """The words that some terms are made of."""

    def __init__(self, analyzer: Analyzer, terms: Set[str]) -> None:
        self._term, self._terms = analyzer.term, terms

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._term(word) in self._terms


def _head(text: str, width: int) -> Window:
    start = len(text) - len(text.lstrip())
    return Window(0.0, start, min(start + width, len(text)), start, start)


def markup(fragment: Fragment) -> str:
    """A fragment as HTML: escaped, its words in `<em>` or `<em class="attended">`, an ellipsis where text goes on."""
    text = "".join(
        f"{_TAGS[mark]}{_escaped(part)}</em>" if mark else _escaped(part) for part, mark in fragment.parts
    )
    return f"{'… ' if fragment.cut_before else ''}{text}{' …' if fragment.cut_after else ''}"


def _escaped(text: str) -> str:
    # JSON in UTF-8 cannot hold a lone surrogate.
    return escape(_LONE_SURROGATE.sub("\ufffd", text))
