"""Typos in queries: the words that an index knows, and corrections of unknown ones."""

from glow.index.spelling.build import build_spelling
from glow.index.spelling.component import SPELLING
from glow.index.spelling.edits import forms, is_one_edit
from glow.index.spelling.format import SPELLING_FOLDER
from glow.index.spelling.speller import Speller
from glow.index.spelling.table import SpellingTable

__all__ = [
    "SPELLING",
    "SPELLING_FOLDER",
    "Speller",
    "SpellingTable",
    "build_spelling",
    "forms",
    "is_one_edit",
]
