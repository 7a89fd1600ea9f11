"""Splits long documents into passages: the body is cut at sentence ends, every passage has all other fields.

A tower reads a body up to its token limit. A passage is a document with a part of the body that fits, so the whole body
is read. Subword tokens are counted as in `Preprocessor`, together with the document's other fields.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from glow.errors import ConfigError
from glow.records import Document
from glow.schema import FieldSchema
from glow.text.preprocessor import Preprocessor

BLANKS = " \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space in BERT's splitting, as a class of regular expressions; other controls join their neighbors."""
_TOKEN = re.compile(f"[^{BLANKS}]+")
_CLOSERS = "\"')]}»”’」』）】》"
_OPENERS = "\"'([{«“‘¿¡「『（【《-–—*"
_ENDS = ".!?…।॥۔؟።"
_IDEOGRAPHIC_END = re.compile("[。！？｡]+[" + re.escape(_CLOSERS) + "]*")
_BULLETS = frozenset("•‣◦▪●■·")
_LINE_BULLETS = frozenset("-–—*+")
_LIST_NUMBER = re.compile(r"\(?(?:[0-9]{1,3}|[A-Za-z]|[ivx]{1,5})[.)]")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st mt rev gen sgt col lt capt hon gov sen rep messrs vs cf al approx ca viz resp".split()
)
_BEFORE_NUMBERS = frozenset("no nos fig figs vol vols p pp eq eqs ch sec art ref refs".split())


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Starts and ends of a text's sentences, without white space around them; they cover all other characters."""
    spans: list[tuple[int, int]] = []
    start = last_start = last_end = -1
    for token in _TOKEN.finditer(text):
        token_start, token_end = token.span()
        if start < 0:
            start = token_start
        elif _ends(text, start, (last_start, last_end), token_start, token[0]):
            spans.append((start, last_end))
            start = token_start
        last_start, last_end = token_start, token_end
        for mark in _IDEOGRAPHIC_END.finditer(text, token_start, token_end):
            spans.append((start, mark.end()))
            start = last_start = mark.end()
        if start == token_end:  # the mark was the token's last
            start = -1
    return spans if start < 0 else [*spans, (start, last_end)]


def _ends(text: str, start: int, last: tuple[int, int], token_start: int, token: str) -> bool:
    """Whether the sentence from `start` ends with its `last` token, before the next `token`."""
    gap = text[last[1] : token_start]
    lines = gap.count("\n") + gap.count("\u2029")
    if lines > 1 or token[0] in _BULLETS:
        return True
    if lines and (token in _LINE_BULLETS or _LIST_NUMBER.fullmatch(token)):
        return True
    word = text[last[0] : last[1]].rstrip(_CLOSERS)
    if not word or word[-1] not in _ENDS or token.lstrip(_OPENERS)[:1].islower():
        return False
    return word[-1] != "." or not _is_short(word.lstrip(_OPENERS), token, is_first=last[0] == start)


def _is_short(word: str, token: str, is_first: bool) -> bool:
    """Whether a word's final full stop marks an abbreviation, or a number in a list."""
    if _INITIALS.fullmatch(word) or (is_first and _LIST_NUMBER.fullmatch(word)):
        return True
    name = word[:-1].lower()
    return name in _ABBREVIATIONS or (name in _BEFORE_NUMBERS and token[0].isdigit())


LEAST_ROOM = 8
"""If the other fields leave fewer tokens, passages would be too short, and the document stays whole."""
PIECES_PER_CHARACTER = 3
"""The maximum: a Hangul syllable decomposes into three letters."""
# For BERT, each of these is a separate word: ASCII marks, ideographs, and marks of their scripts.
_ATOM = re.compile(
    r"[!-/:-@\[-`{-~\u2010-\u2027\u3001-\u3003\u3008-\u3011\uff01-\uff03\uff05-\uff0a\uff0c-\uff0f\uff1a\uff1b\uff1f"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b820-\U0002ceaf]"
)


@dataclass(frozen=True, slots=True)
class PassageOptions:
    """Options of the split."""

    field: str | None = None  # the body; None takes the schema's (`body_field`)
    limit: int = 128  # most passages of a document, >= 1; the rest of the text is left out

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"expected limit >= 1, found {self.limit}")


class Cut(NamedTuple):
    """Result of the split."""

    spans: tuple[tuple[int, int], ...]  # in characters of `body_text`; in order, at least one
    left_out: bool = False  # whether the limit cut off text after the last one


class _Unit(NamedTuple):
    """A sentence, or a part of a long one, which is not split any further."""

    start: int
    end: int
    pieces: int


@dataclass(slots=True)
class LongDocuments:
    """The documents that are longer than the encoder reads, counted while all are read."""

    limit: int  # tokens of a document that the encoder reads
    count: int = 0  # documents that passages would split
    tokens: int = 0  # subword tokens of all bodies
    beyond: int = 0  # of these, tokens that the encoder reads only in passages

    def add(self, tokens: int, beyond: int) -> None:
        """Counts a document, as `PassageCutter.sizes` says."""
        self.count += beyond > 0
        self.tokens += tokens
        self.beyond += beyond

    @property
    def share(self) -> float:
        """The fraction of the text that the encoder reads only in passages."""
        return self.beyond / max(self.tokens, 1)

    def report(self) -> dict[str, Any]:
        return {"count": self.count, "limit": self.limit, "share_beyond": round(self.share, 3)}


class PassageCutter:
    """Splits documents into passages that fit a model's token limits; `body_field` may refuse the field.

    The term statistics of the preprocessor do not matter.
    """

    def __init__(self, preprocessor: Preprocessor, options: PassageOptions = PassageOptions()) -> None:
        self._preprocessor = preprocessor
        self.options = options
        self.field = body_field(preprocessor.schema, options.field)

    def cut(self, document: Document) -> Cut:
        """Where to split a document's body, in time linear in its length.

        A body is one passage if it fits, or if the other fields leave too few tokens. Sentences are split only if they
        do not fit alone, at word ends; words only if no passage could hold them.
        """
        text = body_text(document, self.field)
        whole = Cut(((0, len(text)),))
        room = self._preprocessor.room(document, self.field)
        if room < LEAST_ROOM:
            return whole
        units = [unit for start, end in sentence_spans(text) for unit in self._units(text, start, end, room)]
        if sum(unit.pieces for unit in units) <= room:
            return whole
        spans = tuple(_pack(units, room))
        return Cut(spans[: self.options.limit], len(spans) > self.options.limit)

    def sizes(self, document: Document, words: Sequence[str]) -> tuple[int, int]:
        """Subword tokens of a body's words, and how many of them an encoder reads only in passages."""
        room, tokens = self._preprocessor.room(document, self.field), self._count(words)
        return tokens, max(tokens - room, 0) if room >= LEAST_ROOM else 0

    def passages(self, document: Document) -> list[Document]:
        """The passages of a document in order; the document itself if there is only one."""
        spans = self.cut(document).spans
        return [passage_document(document, self.field, start, end) for start, end in spans]

    def _count(self, words: Sequence[str]) -> int:
        pieces = self._preprocessor.pieces.pieces
        return sum(len(pieces(word)) for word in words)

    def _units(self, text: str, start: int, end: int, room: int) -> Iterator[_Unit]:
        """A sentence as a whole, or its words if it does not fit; a word that does not fit in parts, each of which fills a passage."""
        if unit := self._whole(text, start, end, room):
            yield unit
            return
        for token in _TOKEN.finditer(text, start, end):
            cuts = sorted(
                {*token.span(), *(cut for mark in _ATOM.finditer(text, *token.span()) for cut in mark.span())}
            )
            for left, right in pairwise(cuts):
                if unit := self._whole(text, left, right, room):
                    yield unit
                    continue
                step = room // PIECES_PER_CHARACTER
                for part in range(left, right, step):
                    yield _Unit(part, min(part + step, right), room)

    def _whole(self, text: str, start: int, end: int, room: int) -> _Unit | None:
        pieces = self._count(self._preprocessor.pieces.words(text[start:end]))
        return _Unit(start, end, pieces) if pieces <= room else None


def body_field(schema: FieldSchema, name: str | None = None) -> str:
    """The field to split: the named one, or the text field with the largest token limit (the last one, if several).

    A field with `max_values` is not running text: a `ConfigError` refuses it.
    """
    texts = [spec for spec in schema.fields if spec.kind == "text" and spec.max_values is None]
    fit = {spec.name: spec.tokens for spec in texts}
    if not fit or (name is not None and name not in fit):
        missing = f"no field {name!r}" if name else "no field"
        raise ConfigError(
            f"schema {schema.name} has {missing} that can be split into passages; expected a text field without "
            f"max_values: {', '.join(fit) or 'it has none, so build without passages'}"
        )
    return name if name is not None else max(reversed(fit), key=lambda field: fit[field])


def body_text(document: Document, field: str) -> str:
    """The text that spans refer to: the field's one value, or its values joined by line feeds."""
    return "\n".join(document.fields.get(field, ()))


def passage_document(document: Document, field: str, start: int, end: int) -> Document:
    """A document with only a part of its body, `body_text(document, field)[start:end]`; unchanged if that is all of it."""
    text = body_text(document, field)
    if (start, end) == (0, len(text)):
        return document
    return replace(document, fields={**document.fields, field: (text[start:end],)})


def _pack(units: Sequence[_Unit], room: int) -> Iterator[tuple[int, int]]:
    """Fills passages in order with as many units as fit."""
    first = 0
    while first < len(units):
        total, last = 0, first
        while last < len(units) and total + units[last].pieces <= room:
            total += units[last].pieces
            last += 1
        yield units[first].start, units[last - 1].end
        first = last
