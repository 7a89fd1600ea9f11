"""Reads lines of input as documents with text."""

from collections.abc import Mapping, Sequence

from glow.collection import known_id, read_document, too_long
from glow.errors import RecordError
from glow.records import Document
from glow_index_builder.input.line import Line

__all__ = ["LineReader"]


class LineReader:
    """Reads lines as documents of a model's fields.

    Args:
        names: the fields that the model reads.
        rename: source key -> target key.
        max_line_bytes: longest line to read.
    """

    def __init__(self, names: Sequence[str], rename: Mapping[str, str], max_line_bytes: int) -> None:
        self._names = names
        self._rename = rename
        self._max_line_bytes = max_line_bytes

    def read(self, line: Line) -> Document:
        """The document of a line.

        Raises:
            RecordError: if the line holds no document to index.
        """
        self.require_whole(line)
        return read_document(line.data, self._names, self._rename, self._max_line_bytes)

    def require_whole(self, line: Line) -> None:
        """Refuses a line that is too long or unreadable.

        Raises:
            RecordError: if it is.
        """
        if line.fault:
            raise RecordError(line.fault)
        if line.is_too_long:
            raise too_long(self._max_line_bytes)

    def known_id(self, line: Line) -> str | None:
        """The id of an invalid line, if it can be read."""
        return known_id(line.data, self._rename)
