"""Reads input: files, directories and streams of lines, and records rejected lines."""

from glow_index_builder.input.lines import REJECTS_FILE, Line, LineReader, RejectLog, written_of
from glow_index_builder.input.source import Source, open_sources

__all__ = [
    "REJECTS_FILE", "Line", "LineReader", "RejectLog", "Source", "open_sources", "written_of",
]  # fmt: skip
