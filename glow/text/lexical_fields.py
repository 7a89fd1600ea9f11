"""Words that lexical search finds and no encoder reads: metadata fields of one's own, and what names a document.

Weak words stand in a document's id, the paths of its urls, and short metadata such as brand or category. They count as
a fraction of one occurrence, and only if the document's text lacks the word. They change no length, so the scores of
other documents stay the same.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from glow.options import StrictModel
from glow.records import Document
from glow.schema import FieldSchema
from glow.text.analyzer import is_lexical, lexical_words
from glow.text.words import MAX_URL_CHARACTERS, WordPieces

WEAK_FREQUENCY = 0.3
"""Term frequency of a weak word."""
MOST_CHARACTERS, MOST_WORDS = 64, 8
"""Of a metadata value whose words are weak words; a longer one is a text."""
LEAST_DIGITS = 5
"""A shorter number is a count or a size: "python 3" must not find document 3."""
_HOST = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*|(//)?[\w-]+(\.[\w-]+)+(:\d+)?(?=/))")
_ENDING = re.compile(
    r"\.(md|markdown|rst|adoc|txt|x?html?|php|aspx?|jsp|pdf|docx?|odt|rtf|epub|xlsx?|ods|pptx?|odp|csv|tsv|jsonl?|xml)$",
    re.IGNORECASE,
)
_SHORT_NUMBER = re.compile(rf"[+-]?[0-9]{{0,{LEAST_DIGITS - 1}}}([.,][0-9]+)?%?")
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ]+\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}(:\d{2})?"
)
_ADDRESS = re.compile(r"\w[\w+.-]*://|www\.|mailto:", re.IGNORECASE)
_HASH = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{16,}", re.IGNORECASE)
_JOINTS, _SEPARATORS = re.compile(r"[-_{}:]"), re.compile(r"[\W_]+")
_LONG_CODE = re.compile(r"(?=.*[0-9])(?=.*[a-z])[0-9a-z]{20,}", re.IGNORECASE)


class LexicalFields(StrictModel):
    """What a lexical index holds besides the text fields of its model."""

    text: tuple[str, ...] = ()  # metadata fields, as dotted paths, whose words count as those of a text
    weak: bool = False  # whether weak words are indexed

    def words(self, document: Document, schema: FieldSchema, pieces: WordPieces) -> Iterator[str]:
        """All words of a document's texts, as `lexical_words`, then those of its own fields."""
        yield from lexical_words(document, schema, pieces)
        yield from self.own_words(document, pieces)

    def own_words(self, document: Document, pieces: WordPieces) -> list[str]:
        """The words of the metadata fields that count as text."""
        values = (value for name in self.text for value in texts_at(document.metadata, name))
        return [word for value in values for word in pieces.words(value)]

    def texts(self, document: Document, schema: FieldSchema, field: str = "") -> Iterator[str]:
        """The texts of a document whose words are indexed, urls aside; or those of one text field."""
        for spec in schema.fields:
            if spec.kind == "text" and field in ("", spec.name):
                yield from document.fields.get(spec.name, ())
        for name in self.text:
            if field in ("", name):
                yield from texts_at(document.metadata, name)
        if self.weak and not field:
            yield document.id
            yield from filter(_is_name, _strings(document.metadata))

    def weak_words(self, document: Document, schema: FieldSchema, pieces: WordPieces) -> set[str]:
        """The weak words of a document; its texts may hold some of them, too."""
        if not self.weak:
            return set()
        named = document.id
        parts = _path_parts(named) if "/" in named else [_ENDING.sub("", named)] * (not _says_little(named))
        for spec in schema.fields:
            if spec.kind == "url":
                parts += [part for url in document.fields.get(spec.name, ()) for part in _path_parts(url)]
        parts += [value for value in _strings(document.metadata) if _is_name(value)]
        words = pieces.words(" ".join(parts))
        return {word for word in words if is_lexical(word) and not _LONG_CODE.fullmatch(word)}


def texts_at(metadata: Any, path: str) -> Iterator[str]:
    """The strings and numbers at a dotted path of a document's metadata, also within lists."""
    if isinstance(metadata, list):
        for item in metadata:
            yield from texts_at(item, path)
    elif path and isinstance(metadata, dict):
        for key, value in metadata.items():
            if key == path or path.startswith(f"{key}."):
                yield from texts_at(value, path[len(key) + 1 :])
    elif not path and isinstance(metadata, str | int | float) and not isinstance(metadata, bool):
        yield str(metadata)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _is_name(value: str) -> bool:
    is_short = len(value) <= MOST_CHARACTERS and len(value.split()) <= MOST_WORDS
    return is_short and not _says_little(value)


def _path_parts(url: str) -> list[str]:
    """The words of an address as it writes them, without its host, a usual ending, and its query."""
    path, _, fragment = unquote(url[:MAX_URL_CHARACTERS]).partition("#")
    host = _HOST.match(path)
    path = _ENDING.sub("", path[host.end() if host else 0 :].partition("?")[0])
    parts = _SEPARATORS.split(f"{path} {fragment}")
    return [part for part in parts if len(part) > 1 and not _says_little(part)]


def _says_little(value: str) -> bool:
    """Whether a text is a short number, a date, an address or a hash."""
    value = value.strip()
    is_number_or_date = _SHORT_NUMBER.fullmatch(value) or _DATE.fullmatch(value)
    return bool(is_number_or_date or _ADDRESS.match(value) or _HASH.fullmatch(_JOINTS.sub("", value)))
