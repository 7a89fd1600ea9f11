"""Spelling as a component of an index: `spelling/`, the unstemmed words that queries are corrected to."""

from collections.abc import Sequence

from glow.index.component import Asked, Component, ComponentOptions, Rules
from glow.index.corpus import Corpus
from glow.index.postings import POSTINGS, document_words
from glow.index.segment import MergeSource, Segment
from glow.index.segments import BaseAndDelta
from glow.index.spelling.build import build_spelling, count_words, merged_words
from glow.index.spelling.format import SPELLING_FILES, SPELLING_FOLDER, SPELLING_HEADER
from glow.index.spelling.table import SpellingTable

__all__ = ["SPELLING", "Spelling"]


class Spelling(Component[SpellingTable, tuple[SpellingTable, ...], Rules, ComponentOptions]):
    """Words of the lexical index before stemming, for typo correction."""

    name, label, stage = "spelling", "spelling", "spelling"
    paths, per, needs = (f"{SPELLING_FOLDER}/",), "index", ("postings",)

    def rules(self, options: ComponentOptions, asked: Asked) -> Rules | None:
        """Every index with a lexical component has it."""
        return Rules() if POSTINGS.name in asked.rules else None

    def rules_of(self, segment: Segment, *, delta: bool) -> Rules | None:
        """As in the segment, without options. An old index without it gets it when it is replaced."""
        has_it = segment.has(f"{SPELLING_FOLDER}/{SPELLING_HEADER}")
        return Rules() if has_it or (not delta and POSTINGS.rules_of(segment, delta=delta)) else None

    def build(self, corpus: Corpus, rules: Rules) -> None:
        """As `Component`; an index with stems counts unstemmed words again, because no other component has them."""
        impacts = corpus.made[POSTINGS]
        words = (
            impacts.word_counts()
            if impacts.analyzer.name == "plain"
            else count_words(corpus.counted, document_words(corpus))
        )
        build_spelling(corpus.made.folder / SPELLING_FOLDER, words)

    def merge(self, kept: Sequence[MergeSource], rules: Rules, made: Segment) -> None:
        """As `Component`."""
        found = (each.segment.get(self) for each in kept)
        words = merged_words(made[POSTINGS], (table for table in found if table is not None))
        build_spelling(made.folder / SPELLING_FOLDER, words)

    def open(self, segment: Segment) -> SpellingTable | None:
        """As `Component`."""
        if not segment.has_any(self.paths):
            return None
        segment.require(*(f"{SPELLING_FOLDER}/{name}" for name in SPELLING_FILES))
        return SpellingTable.open(segment.path(SPELLING_FOLDER))

    def alone(self, reader: SpellingTable, segment: Segment) -> tuple[SpellingTable, ...]:
        """One table."""
        return (reader,)

    def join(self, both: BaseAndDelta[SpellingTable]) -> tuple[SpellingTable, ...]:
        """Both tables: a word may be in either; readers add up the counts."""
        return both.base, both.delta


SPELLING = Spelling()
