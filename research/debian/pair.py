"""A training pair, and the cleaning of texts of every source."""

import re
from dataclasses import dataclass

MAX_WORDS = 220
MIN_WORDS = 15
MAX_QUERY_WORDS = 40
MIN_COMMON_SHARE = 0.18
# Datasets for testing only: pairs that name one of them are left out.
HELD_OUT = ("cranfield",)
COMMON_WORDS = frozenset(
    "a an the and or but if then than that this these those it its is are was were be been being has have had do "
    "does did will would can could may might must should shall not no nor of in on at by for from to with without "
    "into onto over under between through during before after above below up down out off as so such when where "
    "which who whom whose what how why all any both each few more most other some only own same too very you your "
    "he she they them their we our i his her one two also there here use used using".split()
)
_WORD = re.compile(r"[A-Za-z]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|resp|Fig|Eq|No|Dr|Mr|St|ca|approx)|\b[A-Z])\.$")


@dataclass(frozen=True)
class Pair:
    """One document with the query that its author wrote for it.

    Attributes:
        id: document id, with the source in front (`deb:bash`).
        query: short description, heading or first sentence.
        title: name of the described object, not the query itself.
        text: the description, at most 220 words of plain English.
        url: address of the object, or "".
    """

    id: str
    query: str
    title: str
    text: str
    url: str = ""

    @property
    def source(self) -> str:
        """The part of the id before the first colon."""
        return self.id.partition(":")[0]


def make_pair(
    identifier: str, query: str, title: str, text: str, url: str = "", min_words: int = MIN_WORDS
) -> Pair | None:
    """Cleans a pair and decides whether it is suitable for training.

    Args:
        identifier: document id.
        query: raw query; a final full stop is removed.
        title: raw title.
        text: raw text with line breaks; lines that are drawings are dropped.
        url: address.
        min_words: texts with fewer words are refused.

    Returns:
        The pair, or None if the text is too short or not English, or the query is empty or too long.
    """
    query = collapsed(query).rstrip(".:;, ")
    text = without_start(collapsed(without_drawings(text)), query)
    text = cut(text, MAX_WORDS)
    words = len(text.split())
    if not _WORD.search(query) or len(query.split()) > MAX_QUERY_WORDS or words < min_words:
        return None
    if not is_english(text) or any(name in f"{title} {query} {text}".lower() for name in HELD_OUT):
        return None
    return Pair(identifier[:200].replace(" ", "_"), query, collapsed(title), text, collapsed(url))


def collapsed(text: str) -> str:
    """Text with each run of white space replaced by one blank, and without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def without_drawings(text: str) -> str:
    """Text without lines of which less than half is letters: drawings and tables."""
    kept = []
    for line in text.splitlines():
        marks = [character for character in line if not character.isspace()]
        letters = sum(character.isalpha() for character in marks)
        if len(marks) < 4 or letters >= 0.5 * len(marks):
            kept.append(line)
    return "\n".join(kept)


def without_start(text: str, query: str) -> str:
    """Text without the query if it begins with it as a separate sentence or heading."""
    if query and text.lower().startswith(query.lower()):
        rest = text[len(query) :]
        start = rest.lstrip(" .:;,-\u2013\u2014")
        if not start or rest[0] in ".:;-" or (rest[0] == " " and start[0].isupper()):
            return start
    return text


def cut(text: str, max_words: int) -> str:
    """The first words of a text, up to the end of a sentence if one is in the last third."""
    words = text.split()
    if len(words) <= max_words:
        return text
    kept = " ".join(words[:max_words])
    end = max(kept.rfind(mark) for mark in (". ", "! ", "? "))
    return kept[: end + 1] if end > 0.67 * len(kept) else kept


def is_english(text: str) -> bool:
    """Whether the fraction of common English words exceeds that of other languages and lists."""
    words = [word.lower() for word in _WORD.findall(text)]
    return bool(words) and sum(word in COMMON_WORDS for word in words) >= MIN_COMMON_SHARE * len(words)


def first_sentence(text: str) -> tuple[str, str]:
    """Splits a collapsed text after its first sentence.

    Returns:
        sentence, rest: the rest is "" if the text is one sentence.
    """
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[: match.start()]):
            return text[: match.start()], text[match.end() :]
    return text, ""
