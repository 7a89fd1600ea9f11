"""Long documents in passages: which rows belong to which document, and a search that returns documents."""

from glow.search.passages.build import build_passages, passages_of
from glow.search.passages.map import (
    ARRAYS,
    PASSAGES_FILES,
    PASSAGES_FOLDER,
    PASSAGES_HEADER,
    FoundPassage,
    PassageMap,
    PassagesHeader,
)
from glow.search.passages.search import search_documents

__all__ = [
    "ARRAYS", "PASSAGES_FILES", "PASSAGES_FOLDER", "PASSAGES_HEADER", "FoundPassage", "PassageMap",
    "PassagesHeader", "build_passages", "passages_of", "search_documents",
]  # fmt: skip
