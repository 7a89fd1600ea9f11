"""Reads input: files, directories and streams of lines, and records rejected lines."""

from glow_index_builder.input.lines import (
    REJECTS_FILE,
    Line,
    LineReader,
    RejectLog,
    skipped_words,
    written_of,
)
from glow_index_builder.input.source import Source, Sources, guess_types, open_lines, open_sources

__all__ = [
    "REJECTS_FILE", "Line", "LineReader", "RejectLog", "Source", "Sources", "guess_types", "open_lines", "open_sources",
    "skipped_words", "written_of",
]  # fmt: skip
