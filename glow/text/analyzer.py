"""Analyzers: turn words into terms of a lexical index, for documents and queries alike.

`plain` keeps words as they are. `english` folds the several Unicode forms of a letter, then takes the stem by Snowball's
English rules (Porter 2001, https://snowballstem.org/algorithms/english/stemmer.html), so that "directories" finds
"directory". An index names its analyzer, which its documents, queries, snippets and explanations all use.
"""

import threading
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any, Literal

import Stemmer

from glow.errors import ConfigError
from glow.records import Document
from glow.schema import FieldSchema
from glow.text.terms import DEFAULT_MAX_WORDS, MAX_WORD_CHARACTERS, TermCounter, TermTable
from glow.text.words import Unit, WordPieces, is_punctuation

STOP_WORDS = frozenset(
    # articles and demonstratives, pronouns, conjunctions and particles
    "a an the this that these those such same "
    "i me my mine we us our ours you your yours he him his she her hers it its they them their theirs "
    "myself yourself himself herself itself ourselves yourselves themselves "
    "and or but nor so if then than because while as too also just only very not no there here "
    # forms of be, have and do, modal verbs, and what an apostrophe leaves of them
    "am is are was were be been being have has had having do does did doing done "
    "can could will would shall should may might must "
    "s t re ve ll don doesn didn isn aren wasn won "
    # question words
    "what which who whom whose when where why how "
    # prepositions that hold words together; those of place and time (over, under, before, after) mean something
    "of in on at by for with to from into about as".split()
)
"""English stop words: closed word classes, listed by kind."""


def is_indexed(word: str) -> bool:
    """Whether a lexical index includes a word; stop words are included."""
    return len(word) <= MAX_WORD_CHARACTERS and not is_punctuation(word)


def is_lexical(word: str) -> bool:
    """Whether a word is indexed and counts beside others: it is no stop word."""
    return word not in STOP_WORDS and is_indexed(word)


def searched_words(words: Sequence[str]) -> list[str]:
    """The words of a query that lexical search uses, with repetitions: no stop words, unless it has no others."""
    return [word for word in words if is_lexical(word)] or [word for word in words if is_indexed(word)]


def lexical_words(document: Document, schema: FieldSchema, pieces: WordPieces) -> Iterable[str]:
    """All words of all text fields of a document, including stop words and punctuation; urls are left out.

    All values of a list count, while a tower reads only the first ones, up to its token limit.
    """
    for spec in schema.fields:
        if spec.kind == "text":
            for value in document.fields.get(spec.name, ()):
                yield from pieces.words(value)


AnalyzerName = Literal["plain", "english"]
DEFAULT_ANALYZER: AnalyzerName = "english"
"""Default of a new index; docs/results/serving.md has the measurements."""
CACHED_WORDS = 100_000
_LETTERS = {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i", "ħ": "h"}
"""Letters that no Unicode normal form decomposes; case folding turns ß into ss."""
_LATIN = str.maketrans(_LETTERS)


class Analyzer:
    """Turns words into terms of a lexical index, as its name says; safe to use from many threads."""

    def __init__(self, name: AnalyzerName = "plain") -> None:
        self.name: AnalyzerName = name
        # A cached method would make a reference cycle, which only the collector frees.
        stem = partial(_stem, Stemmer.Stemmer("english", 0), threading.Lock())
        self._cached = lru_cache(maxsize=CACHED_WORDS)(stem)

    def term(self, word: str) -> str:
        """The term of a word; words that are too long for the index stay as they are.

        A stop word is a term of its own, with a dot that no stem has: `will` is not a form of `wills`.
        """
        return word if self.name == "plain" or len(word) > MAX_WORD_CHARACTERS else self._cached(word)

    def folded(self, word: str) -> str:
        """A word without differences that no term has, such as accents, but no stem."""
        return word if self.name == "plain" or word.isascii() else _folded(word)

    def table(self, words: TermTable) -> TermTable:
        """Term statistics computed from word statistics, for a collection whose documents are not available.

        A term's document frequency is the sum over its words, an upper bound, at most the number of documents.
        """
        if self.name == "plain":
            return words
        counts: dict[str, int] = {}
        for word, df in words.items():
            if is_indexed(word):
                term = self.term(word)
                counts[term] = min(counts.get(term, 0) + df, words.documents)
        return TermTable.from_counts(counts, words.documents, words.lengths, words.dropped_words)


class CorpusCounter:
    """Counts a collection's words, its terms, and the words that only lexical search reads: at most `max_words` >= 1 of each.

    `own` says whether documents have words of their own fields (`LexicalFields`).
    """

    def __init__(self, analyzer: Analyzer, max_words: int = DEFAULT_MAX_WORDS, *, own: bool = False) -> None:
        self._analyzer = analyzer
        self._words = TermCounter(max_words)
        self._terms = TermCounter(max_words) if own or analyzer.name != "plain" else None
        self._further = TermCounter(max_words)

    def add(
        self, fields: Mapping[str, Sequence[str]], own: Sequence[str] = (), weak: Collection[str] = ()
    ) -> None:
        """Counts one document: field -> its words before truncation, the words of its own fields, and its weak words."""
        self._words.add(fields)
        if self._terms is not None:
            texts = {**fields, "": own} if own else fields
            term = self._analyzer.term
            self._terms.add(
                {name: [term(word) for word in words if is_indexed(word)] for name, words in texts.items()}
            )
        if own or weak:
            self._further.add({"": [*{*own, *weak}.difference(*fields.values())]})

    def tables(self) -> tuple[TermTable, TermTable, TermTable]:
        """The finished statistics: of words that the encoder reads, of a lexical index's terms, and of its words.

        Tables that do not differ are one object. A word that only weak words hold has its frequency among these.
        """
        words, further = self._words.table(), self._further.table()
        terms = words if self._terms is None else self._terms.table()
        return words, terms.with_missing(self._analyzer.table(further)), words.with_missing(further)


def check_analyzer(name: AnalyzerName, unit: Unit) -> None:
    """Raises a `ConfigError` if stems are requested of a model whose `Weighting.unit` is subword tokens."""
    if name != "plain" and unit != "word":
        raise ConfigError(
            f"--analyzer {name}: this model weights subword tokens, which have no stems; use --analyzer plain"
        )


def _stem(stemmer: Any, lock: threading.Lock, word: str) -> str:
    if word in STOP_WORDS:
        return f"{word}."
    with lock:  # a stemmer is not thread-safe
        stem: str = stemmer.stemWord(word if word.isascii() else _folded(word))
    return stem


def _folded(word: str) -> str:
    """A word without differences of Unicode form, case and accent."""
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", word).casefold())
    bare = "".join(letter for letter in parts if not unicodedata.combining(letter)).translate(_LATIN)
    return unicodedata.normalize("NFC", bare) or word


LEAST_LETTERS = 4
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Rows of a keyboard: a wrong key is a neighbor in the row."""


def misspell(word: str, chance: Random) -> str:
    """A word with one typo that changes it: a letter is deleted, doubled, replaced by a neighboring key, or swapped with the next.

    The word has at least two distinct lower-case letters. Place and kind of the typo have equal probabilities.
    """
    while True:
        at = chance.randrange(len(word))
        kind = chance.choice(("left out", "doubled", "beside", "swapped"))
        if kind == "left out":
            misspelled = word[:at] + word[at + 1 :]
        elif kind == "doubled":
            misspelled = word[: at + 1] + word[at:]
        elif kind == "beside":
            misspelled = word[:at] + chance.choice(_beside(word[at])) + word[at + 1 :]
        else:
            misspelled = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
        if misspelled != word:
            return misspelled


def misspell_in(text: str, chance: Random) -> str:
    """A text with a typo in one content word of four letters or more; unchanged without such a word."""
    words = text.split(" ")
    places = [
        at
        for at, word in enumerate(words)
        if len(word) >= LEAST_LETTERS and word.isascii() and word.isalpha() and is_lexical(word.lower())
    ]
    if places:
        at = chance.choice(places)
        words[at] = misspell(words[at].lower(), chance)
    return " ".join(words)


def _beside(letter: str) -> str:
    for row in ROWS:
        at = row.find(letter)
        if at >= 0:
            return row[max(at - 1, 0) : at] + row[at + 1 : at + 2]
    return letter
