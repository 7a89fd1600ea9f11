"""Which words of a document are in a lexical index.

Words are those of `WordPieces.words`. Punctuation and stop words are left out (docs/decisions/0006 has the gain).
Queries need no such rule, because words that are not indexed match nothing.
Words longer than the limit of the term statistics are data, not language.
"""

from collections.abc import Iterable

from glow.records import Document
from glow.schema import FieldSchema
from glow.text.terms import MAX_WORD_CHARACTERS
from glow.text.words import WordPieces, is_punctuation

__all__ = ["STOP_WORDS", "is_lexical", "lexical_words"]

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


def is_lexical(word: str) -> bool:
    """Whether a lexical index includes a word."""
    return word not in STOP_WORDS and len(word) <= MAX_WORD_CHARACTERS and not is_punctuation(word)


def lexical_words(document: Document, schema: FieldSchema, pieces: WordPieces) -> Iterable[str]:
    """All words of all text fields of a document, including stop words and punctuation; urls are left out.

    All values of a list count, while a tower reads only the first ones, up to its token limit.
    """
    for spec in schema.fields:
        if spec.kind == "text":
            for value in document.fields.get(spec.name, ()):
                yield from pieces.words(value)
