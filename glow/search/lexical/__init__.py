"""Words: the inverted index of impacts, and BM25 that fills it."""

from glow.search.lexical.bm25 import Bm25, build_lexical
from glow.search.lexical.format import (
    IMPACTS_FILES,
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    ImpactHeader,
    read_impacts_header,
)
from glow.search.lexical.impacts import ImpactIndex
from glow.search.lexical.vocabulary import Vocabulary

__all__ = [
    "IMPACTS_FILES", "IMPACTS_FOLDER", "IMPACTS_HEADER", "MAXIMA_FILE", "ROWS_FILE", "STARTS_FILE",
    "VALUES_FILE", "Bm25", "ImpactHeader", "ImpactIndex", "Vocabulary", "build_lexical",
    "read_impacts_header",
]  # fmt: skip
