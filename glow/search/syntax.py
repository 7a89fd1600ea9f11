"""The syntax of queries: `"a phrase"`, `-word`, `-"a phrase"`, `field:word`; what is not well formed is words.

A constraint becomes a mask of rows. The postings name the documents that hold its words, and their stored texts decide.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.index import Index, RowMask
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.text import WordPieces, is_indexed, is_punctuation

MAX_PARTS = 16
"""Most phrases, exclusions and fields of a query; what follows them is words."""
MOST_WORDS = 64
"""Words of a phrase that count: a long one costs time at each place of a text."""
LEAST_EXCLUDED = 3
"""Characters of an excluded word: shorter ones are options of commands, as in `ls -la`."""
_PART = re.compile(
    r"(?<!\S)(?P<minus>-?)(?:(?P<field>[^\W_][^\s:\"“”„]*):)?"
    r"(?:[\"“„](?P<phrase>[^\"“”„]*)[\"“”](?!\w)|(?P<word>[^\W_][^\s\"“”„]*)(?!\S))"
)
_SENTENCE_MARKS = ".,;:!?"


@dataclass(frozen=True, slots=True)
class Constraint:
    """What every hit must hold, or must not: a word or a phrase."""

    words: tuple[str, ...]  # as preprocessing yields them, in their order; at least one
    field: str = ""  # the text field that holds them; "" for any
    excluded: bool = False
    is_exact: bool = True  # whether other forms of the words, of the same stems, do not count


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a query: plain text, or what has a meaning in its syntax."""

    text: str  # as it is searched
    field: str = ""
    excluded: bool = False
    is_phrase: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is words alone."""
        return not (self.field or self.excluded or self.is_phrase)

    @property
    def may_be_corrected(self) -> bool:
        """Whether it may have typos; what was typed decides which documents are excluded or hold a phrase."""
        return not (self.excluded or self.is_phrase)

    def constraint(self, pieces: WordPieces) -> Constraint | None:
        """What documents must hold or lack for it; None for words alone.

        Punctuation counts only beside a single word, as in C++.
        """
        if self.is_plain:
            return None
        words = pieces.words(self.text.rstrip(_SENTENCE_MARKS))
        bare = [word for word in words if not is_punctuation(word)]
        return Constraint(
            tuple(map(str, (bare if len(bare) > 1 else words)[:MOST_WORDS])),
            self.field,
            self.excluded,
            is_exact=self.is_phrase or len(words) > 1,
        )


def parse(text: str, field_names: Collection[str]) -> tuple[str, tuple[Part, ...]]:
    """The text to search, and the parts of a query that may name these fields; one plain part without syntax."""
    parts, end = list[Part](), 0
    for match in _PART.finditer(text):
        part = _part(match, field_names)
        if part is not None and len(parts) < 2 * MAX_PARTS:  # each with the plain text before it
            parts += [Part(text[end : match.start()]), part]
            end = match.end()
    if not parts:
        return text, (Part(text),)
    parts.append(Part(text[end:]))
    searched = searched_text(parts)
    if not any(letter.isalnum() for letter in searched):  # exclusions alone
        return text, (Part(text),)
    return searched, tuple(part for part in parts if part.text)


def searched_text(parts: Iterable[Part]) -> str:
    """The text of parts without what is excluded."""
    return "".join("" if part.excluded else part.text for part in parts).strip()


def fields_of(index: Index) -> tuple[str, ...]:
    """The fields that a query may name."""
    texts = tuple(spec.name for spec in index.preprocessor.schema.fields if spec.kind == "text")
    return (*texts, *index.base[POSTINGS].header.fields.text)


def reads_documents(text: str) -> bool:
    """Whether the syntax of a query may need stored texts: it has a phrase or a field."""
    return any(match["field"] or match["phrase"] for match in _PART.finditer(text))


def _part(match: re.Match[str], field_names: Collection[str]) -> Part | None:
    """What a match stands for; None: words."""
    field, excluded = match["field"] or "", bool(match["minus"])
    text, is_phrase = match["phrase"] or match["word"] or "", match["word"] is None
    is_short = excluded and not is_phrase and len(match[0]) - 1 < LEAST_EXCLUDED
    if is_short or (field and field not in field_names) or not any(map(str.isalnum, text)):
        return None
    part = Part(text, field, excluded, is_phrase)
    return None if part.is_plain else part


Check = Callable[[], None]
MOST_REMOTE = 1_000
"""Documents to verify for a constraint if a vector store has the postings: the best ones for its words."""
DOCUMENTS_AT_ONCE = 64


def constraint_mask(
    index: Index,  # with a lexical component
    constraints: Sequence[Constraint],
    allowed: RowMask | None,  # the documents that may be found otherwise; None: all
    check: Check,  # called every few documents; what it raises ends the work
) -> RowMask | None:
    """The documents that satisfy every constraint; None: all."""
    live = live_mask(index) if allowed is None else allowed.mask
    mask = live.copy()
    for constraint in constraints:
        check()
        rows = _rows(index, constraint, allowed, live, check)
        if constraint.excluded:
            mask[rows] = False
        else:
            holds = np.zeros_like(mask)
            holds[rows] = True
            mask &= holds
    return allowed if np.array_equal(mask, live) else RowMask(mask)


def live_mask(index: Index) -> NDArray[np.bool_]:
    """The documents that are not deleted, bool [n]."""
    live = np.ones(index.view.rows.documents, np.bool_)
    if index.delta is not None:
        live[index.delta.rows.tombstones] = False
    return live


def _rows(
    index: Index,
    constraint: Constraint,
    allowed: RowMask | None,
    live: NDArray[np.bool_],  # the rows of `allowed`, without deleted ones
    check: Check,
) -> NDArray[np.int64]:
    """The allowed documents that hold the words of a constraint, ascending."""
    impacts, stored = index[POSTINGS], index[STORED_FIELDS]
    indexed = [word for word in constraint.words if is_indexed(word)]
    if impacts.is_remote:
        rows = np.sort(impacts.search(indexed, MOST_REMOTE, allowed, index.order)[1])
    else:
        lists = [impacts.rows_with(word) for word in dict.fromkeys(indexed)]
        rows = rows_in_all(lists, len(live)) if lists else np.empty(0, np.int64)
    rows = rows[live[rows]]
    is_verbatim = constraint.is_exact and impacts.analyzer.name != "plain"
    if len(constraint.words) == 1 and not constraint.field and not is_verbatim:
        return rows
    fields, schema = index.base[POSTINGS].header.fields, index.preprocessor.schema
    holds, matches = _matcher(index, constraint), list[int]()
    for start in range(0, len(rows), DOCUMENTS_AT_ONCE):
        check()
        some = rows[start : start + DOCUMENTS_AT_ONCE].tolist()
        for row, document in zip(some, stored.rows(some), strict=True):
            if any(map(holds, fields.texts(document, schema, constraint.field))):
                matches.append(row)
    return np.array(matches, np.int64)


SPARSE_SHARE = 8
"""A list with so many times fewer rows than another is looked up in it; otherwise both become masks."""
Rows = NDArray[np.int64]


def rows_in_all(lists: Sequence[Rows], documents: int) -> Rows:
    """The rows that are in all ascending lists, the shortest first."""
    common, *further = sorted(lists, key=len)
    for rows in further:
        if not len(common):
            return common
        common = common[are_among(common, rows, documents)]
    return common


def are_among(some: Rows, rows: Rows, documents: int = 0) -> NDArray[np.bool_]:
    """Whether each of some rows is among ascending rows, of which there are some; `documents` allows a mask."""
    if documents and len(some) * SPARSE_SHARE > len(rows):
        mask = np.zeros(documents, np.bool_)
        mask[rows] = True
        return mask[some]
    places = np.minimum(np.searchsorted(rows, some), len(rows) - 1)
    there: NDArray[np.bool_] = rows[places] == some
    return there


_BLANKS = r"\t\n\r "
_GAP = _BLANKS + r"!-/:-@\[-`{-~"
"""ASCII blanks and marks: in ASCII text, words are what stands between them."""


def _matcher(index: Index, constraint: Constraint) -> Callable[[str], bool]:
    """Whether a text holds the words of a constraint one after another, marks between them aside."""
    pieces, analyzer = index.preprocessor.pieces, index[POSTINGS].analyzer
    words = [analyzer.folded(word) for word in constraint.words]

    def plain(text: str) -> str:
        """The text in lower case, with words beyond ASCII as they are compared."""
        if text.isascii():
            return text.lower()
        chunks = (
            [chunk] if chunk.isascii() else map(analyzer.folded, pieces.whole_words(chunk))
            for chunk in text.split(" ")
        )
        parts = (word for chunk in chunks for word in chunk if word.isascii() or not is_punctuation(word))
        return " ".join(parts).lower()

    if not constraint.is_exact and analyzer.name != "plain":
        # A word has the first letter of its stem, and the first letter tells most words apart.
        term, pattern = analyzer.term(words[0]), re.compile(f"{_at_start(words[0][0])}[^{_GAP}]*")
        return lambda text: any(analyzer.term(word) == term for word in pattern.findall(plain(text)))
    between = f"[{_BLANKS}]*" if any(map(is_punctuation, words)) else f"[{_GAP}]+"
    exact = re.compile(
        between.join(
            re.escape(word) if is_punctuation(word) else f"{_at_start(word)}(?![^{_GAP}])" for word in words
        )
    )
    return lambda text: bool(exact.search(plain(text)))


def _at_start(letters: str) -> str:
    """A pattern of letters that begin a word; it begins with a literal, which makes a search fast."""
    literal = re.escape(letters)
    return f"{literal}(?<![^{_GAP}]{literal})"
