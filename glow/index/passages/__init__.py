"""Long documents in passages: which rows belong to which document, and a search that returns documents."""

from glow.index.passages.build import build_passages, passages_of
from glow.index.passages.component import PASSAGES
from glow.index.passages.map import (
    ARRAYS,
    PASSAGES_FOLDER,
    Folded,
    FoundPassage,
    PassageMap,
    PassagesHeader,
)

__all__ = [
    "ARRAYS",
    "PASSAGES",
    "PASSAGES_FOLDER",
    "Folded",
    "FoundPassage",
    "PassageMap",
    "PassagesHeader",
    "build_passages",
    "passages_of",
]
