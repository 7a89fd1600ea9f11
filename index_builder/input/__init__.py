"""Reads input: files, directories and streams of lines, and records rejected lines."""

from glow_index_builder.input.compressed import ZSTD, decompressed, format_of, require_package
from glow_index_builder.input.line import Line
from glow_index_builder.input.lines import LineReader
from glow_index_builder.input.rejects import REJECTS_FILE, RejectLog, written_of
from glow_index_builder.input.source import Source, open_sources

__all__ = [
    "REJECTS_FILE", "ZSTD", "Line", "LineReader", "RejectLog", "Source", "decompressed", "format_of",
    "open_sources", "require_package", "written_of",
]  # fmt: skip
