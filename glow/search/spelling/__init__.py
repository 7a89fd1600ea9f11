"""Slips of the keyboard in queries: which words an index knows, and what was meant by those that it does not."""

from glow.search.spelling.build import build_spelling, merge_tables
from glow.search.spelling.format import SPELLING_FILES, SPELLING_FOLDER, SPELLING_HEADER
from glow.search.spelling.speller import Correction, Speller
from glow.search.spelling.table import SpellingTable

__all__ = [
    "SPELLING_FILES", "SPELLING_FOLDER", "SPELLING_HEADER", "Correction", "Speller", "SpellingTable",
    "build_spelling", "merge_tables",
]  # fmt: skip
