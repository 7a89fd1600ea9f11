"""Typos in queries: which words an index knows, and what an unknown word may mean."""

from glow.index.spelling.build import build_spelling, merge_tables
from glow.index.spelling.edits import forms, is_one_edit
from glow.index.spelling.format import SPELLING_FILES, SPELLING_FOLDER, SPELLING_HEADER
from glow.index.spelling.speller import Correction, Speller
from glow.index.spelling.table import SpellingTable

__all__ = [
    "SPELLING_FILES",
    "SPELLING_FOLDER",
    "SPELLING_HEADER",
    "Correction",
    "Speller",
    "SpellingTable",
    "build_spelling",
    "forms",
    "is_one_edit",
    "merge_tables",
]
