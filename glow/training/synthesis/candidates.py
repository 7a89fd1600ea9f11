"""Query candidates from a document's own text: clicked queries, title, anchors, sentences, keywords."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

import numpy as np

from glow.records import Document
from glow.schema import FieldSchema

__all__ = ["KINDS", "Candidate", "KeywordCounts", "Kind", "candidates", "choose", "without"]

Kind = Literal["clicked", "title", "anchor", "first", "keywords", "cloze"]
KINDS: tuple[Kind, ...] = ("clicked", "title", "anchor", "first", "keywords", "cloze")
"""Kinds of queries, the most reliable descriptions of their document first."""

MIN_WORDS: dict[Kind, int] = {"clicked": 1, "title": 1, "anchor": 2, "first": 4, "keywords": 2, "cloze": 4}
"""Fewest words: one may be a clicked query or a title (a command's name); in an anchor it is mostly `here` or `more`."""
MAX_WORDS = 40
KEYWORDS = (2, 5)
MIN_LETTERS = 2
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*>>>)")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[^\W_]+(?:[-'.+#_][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible query for a document: its kind and its text."""

    kind: Kind
    text: str


class KeywordCounts:
    """Document frequencies of a corpus's words, for keyword queries.

    Args:
        documents: the corpus.
        schema: its text fields, except URLs, are read.
    """

    def __init__(self, documents: Sequence[Document], schema: FieldSchema) -> None:
        self._names = tuple(spec.name for spec in schema.fields if spec.kind == "text")
        self._documents = len(documents)
        self._dfs: Counter[str] = Counter()
        for document in documents:
            self._dfs.update(set(self._words(document)))

    def keywords(self, document: Document, count: int) -> str:
        """At most `count` words of highest tf·idf, in the order of their first occurrence."""
        frequencies = Counter(self._words(document))  # keeps the order of first occurrence
        scores = {word: tf * self._idf(word) for word, tf in frequencies.items()}
        best = set(sorted(scores, key=lambda word: -scores[word])[:count])
        return " ".join(word for word in frequencies if word in best)

    def _idf(self, word: str) -> float:
        df = self._dfs[word]
        return log(1.0 + (self._documents - df + 0.5) / (df + 0.5))

    def _words(self, document: Document) -> Iterator[str]:
        for name in self._names:
            for text in document.fields.get(name, ()):
                for word in _WORD.findall(text.lower()):
                    if len(word) >= MIN_LETTERS and any(letter.isalpha() for letter in word):
                        yield word


def candidates(document: Document, counts: KeywordCounts, random: np.random.Generator) -> list[Candidate]:
    """All distinct query candidates of a document, in the order of `KINDS`."""
    by_text: dict[str, Candidate] = {}
    for kind, text in _texts(document, counts, random):
        plain = _SPACE.sub(" ", text).strip()
        if MIN_WORDS[kind] <= len(plain.split()) <= MAX_WORDS and _WORD.search(plain):
            by_text.setdefault(_key(plain), Candidate(kind, plain))
    return list(by_text.values())


def choose(found: Sequence[Candidate], most: int, random: np.random.Generator) -> list[Candidate]:
    """Chooses up to `most`: the first candidate, then random ones that spread evenly over the kinds."""
    if not found:
        return []
    taken: Counter[str] = Counter([found[0].kind])
    turns: list[tuple[int, int, int]] = []
    for place in (random.permutation(len(found) - 1) + 1).tolist():
        turns.append((taken[found[place].kind], len(turns), place))
        taken[found[place].kind] += 1
    return [found[0], *(found[place] for _, _, place in sorted(turns)[: most - 1])]


def without(document: Document, text: str) -> Document:
    """A copy of a document without a text that is a whole value or a whole sentence of it."""
    key = _key(text)
    fields = {
        name: tuple(rest for value in values if (rest := _cut(value, key)))
        for name, values in document.fields.items()
    }
    return Document(document.id, fields, document.metadata)


def _texts(
    document: Document, counts: KeywordCounts, random: np.random.Generator
) -> Iterator[tuple[Kind, str]]:
    fields = document.fields
    yield from (("clicked", text) for text in fields.get("clicked_queries", ()))
    titles = fields.get("title", ())
    yield from (("title", text) for text in titles)
    yield from (("anchor", text) for text in fields.get("anchor", ()))
    sentences = [sentence for body in fields.get("text", ()) for sentence in _SENTENCE_END.split(body)]
    # A body may begin with its title; the first sentence is then the next long enough one.
    known = {_key(title) for title in titles}
    least = MIN_WORDS["first"]
    others = [text for text in sentences if _key(text) not in known and len(text.split()) >= least]
    yield from (("first", sentence) for sentence in others[:1])
    low, high = KEYWORDS
    yield "keywords", counts.keywords(document, int(random.integers(low, high + 1)))
    yield from (("cloze", sentence) for sentence in others[1:])


def _cut(value: str, key: str) -> str:
    if _key(value) == key:
        return ""
    sentences = _SENTENCE_END.split(value)
    kept = [sentence for sentence in sentences if _key(sentence) != key]
    return value if len(kept) == len(sentences) else " ".join(kept)


def _key(text: str) -> str:
    """A key that ignores case, white space and surrounding punctuation."""
    return _SPACE.sub(" ", text).strip(" .!?").lower()
