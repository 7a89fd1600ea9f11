"""Long documents as passages: the body cut at sentence ends, every other field in each of them.

A tower reads a body up to its budget. A passage is a document whose body is a part of the whole that fits, so nothing
of a long body stays unread. Pieces are counted as `Preprocessor` counts them, beside the document's other fields.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from glow.errors import ConfigError
from glow.records import Document
from glow.schema import FieldSchema
from glow.text.preprocessor import Preprocessor
from glow.text.sentences import BLANKS, sentence_spans

__all__ = ["Cut", "PassageCutter", "PassageOptions", "body_field", "body_text", "passage_document"]

LEAST_ROOM = 8
"""Where the other fields leave less, passages would be crumbs and the document stays whole."""
PIECES_PER_CHARACTER = 3
"""The most: a Hangul syllable decomposes into three letters."""
_TOKEN = re.compile(f"[^{BLANKS}]+")
# Each is a word of its own to BERT wherever it stands: ASCII marks, ideographs, and marks of their scripts.
_ATOM = re.compile(
    r"[!-/:-@\[-`{-~\u2010-\u2027\u3001-\u3003\u3008-\u3011\uff01-\uff03\uff05-\uff0a\uff0c-\uff0f\uff1a\uff1b\uff1f"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b820-\U0002ceaf]"
)


@dataclass(frozen=True, slots=True)
class PassageOptions:
    """How to cut.

    Attributes:
        field: the body; None takes the schema's (`body_field`).
        overlap: sentences of a passage that the next one repeats where they fit, >= 0.
        limit: the most passages of a document, >= 1; what lies beyond is left out.
    """

    field: str | None = None
    overlap: int = 0
    limit: int = 128

    def __post_init__(self) -> None:
        if self.overlap < 0 or self.limit < 1:
            raise ConfigError(f"expected overlap >= 0 and limit >= 1, found {self.overlap} and {self.limit}")


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a body is cut.

    Attributes:
        spans: start and end of each passage, in characters of `body_text`; in order, at least one.
        left_out: whether text after the last one was left out by the limit.
    """

    spans: tuple[tuple[int, int], ...]
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence, or a part of a long one: what is not cut any further."""

    start: int
    end: int
    pieces: int


class PassageCutter:
    """Cuts documents into passages that fit a model's budgets.

    Args:
        preprocessor: the model's; its term table does not matter.
        options: how to cut.

    Attributes:
        field: the body.
        options: as given.

    Raises:
        ConfigError: as `body_field`.
    """

    def __init__(self, preprocessor: Preprocessor, options: PassageOptions = PassageOptions()) -> None:
        self._preprocessor = preprocessor
        self.options = options
        self.field = body_field(preprocessor.schema, options.field)

    def cut(self, document: Document) -> Cut:
        """Where to cut a document's body, in time linear in its length.

        A body that fits, or that finds hardly any room beside the other fields, is one passage. A sentence is cut
        only where it does not fit alone, at word ends; a word only where no passage could hold it.
        """
        text = body_text(document, self.field)
        whole = Cut(((0, len(text)),))
        room = self._preprocessor.room(document, self.field)
        if room < LEAST_ROOM:
            return whole
        units = [unit for start, end in sentence_spans(text) for unit in self._units(text, start, end, room)]
        if sum(unit.pieces for unit in units) <= room:
            return whole
        spans = tuple(_pack(units, room, self.options.overlap))
        return Cut(spans[: self.options.limit], len(spans) > self.options.limit)

    def passages(self, document: Document) -> list[Document]:
        """The passages of a document in order, itself where it is one."""
        spans = self.cut(document).spans
        return [passage_document(document, self.field, start, end) for start, end in spans]

    def _count(self, text: str) -> int:
        pieces = self._preprocessor.pieces
        return sum(len(pieces.pieces(word)) for word in pieces.words(text))

    def _units(self, text: str, start: int, end: int, room: int) -> Iterator[_Unit]:
        """A sentence whole, or where it does not fit its words."""
        pieces = self._count(text[start:end])
        if pieces <= room:
            yield _Unit(start, end, pieces)
            return
        for token in _TOKEN.finditer(text, start, end):
            cuts = sorted(
                {*token.span(), *(cut for mark in _ATOM.finditer(text, *token.span()) for cut in mark.span())}
            )
            for left, right in pairwise(cuts):
                yield from self._parts(text, left, right, room)

    def _parts(self, text: str, start: int, end: int, room: int) -> Iterator[_Unit]:
        """A word whole, or where it does not fit its parts, each of which takes a passage alone."""
        pieces = self._count(text[start:end])
        if pieces <= room:
            yield _Unit(start, end, pieces)
            return
        step = room // PIECES_PER_CHARACTER
        for left in range(start, end, step):
            yield _Unit(left, min(left + step, end), room)


def body_field(schema: FieldSchema, name: str | None = None) -> str:
    """The field that is cut: the named one, or the text field of the largest budget, of equals the last.

    Raises:
        ConfigError: if the schema has no such field, or a limit on its number of values says that it is no running text.
    """
    fit = {
        spec.name: spec.tokens for spec in schema.fields if spec.kind == "text" and spec.max_values is None
    }
    if not fit or (name is not None and name not in fit):
        asked = f"no field {name!r}" if name else "no field"
        raise ConfigError(
            f"schema {schema.name} has {asked} that could be cut into passages; expected a text field without "
            f"max_values: {', '.join(fit) or 'it has none, so build without passages'}"
        )
    return name if name is not None else max(reversed(fit), key=lambda field: fit[field])


def body_text(document: Document, field: str) -> str:
    """The text that spans refer to: the field's one value, or its values joined by line feeds."""
    return "\n".join(document.fields.get(field, ()))


def passage_document(document: Document, field: str, start: int, end: int) -> Document:
    """A document with a part of its body, `body_text(document, field)[start:end]`; itself for the whole."""
    text = body_text(document, field)
    if (start, end) == (0, len(text)):
        return document
    return replace(document, fields={**document.fields, field: (text[start:end],)})


def _pack(units: Sequence[_Unit], room: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Fills passages one after the other with as many units as fit."""
    first = 0
    while first < len(units):
        total, last = 0, first
        while last < len(units) and total + units[last].pieces <= room:
            total += units[last].pieces
            last += 1
        yield units[first].start, units[last - 1].end
        if last == len(units):
            return
        repeated, total = last, units[last].pieces
        while repeated > max(last - overlap, first + 1) and total + units[repeated - 1].pieces <= room:
            repeated -= 1
            total += units[repeated].pieces
        first = repeated
