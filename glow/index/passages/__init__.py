"""Passages of long documents: the rows of each document, and a search that returns documents."""

from glow.index.passages.build import build_passages
from glow.index.passages.component import PASSAGES
from glow.index.passages.map import (
    ARRAYS,
    PASSAGES_FOLDER,
    Folded,
    FoundPassage,
    PassageMap,
    PassagesHeader,
)
from glow.index.passages.texts import TextsOfDocuments, cuts_of, texts_of

__all__ = [
    "ARRAYS",
    "PASSAGES",
    "PASSAGES_FOLDER",
    "Folded",
    "FoundPassage",
    "PassageMap",
    "PassagesHeader",
    "TextsOfDocuments",
    "build_passages",
    "cuts_of",
    "texts_of",
]
