"""Lines of input to documents with text."""

from collections.abc import Mapping, Sequence

from glow.collection import has_text, parse_document, parse_object
from glow.errors import RecordError
from glow.records import Document
from glow_index_builder.input.source import Line

__all__ = ["LineReader"]

SHOWN_KEYS = 6


class LineReader:
    """Reads lines as documents of a model's fields.

    Args:
        names: the fields that the model reads.
        rename: found key -> wanted key.
        max_line_bytes: longest line that is read.
    """

    def __init__(self, names: Sequence[str], rename: Mapping[str, str], max_line_bytes: int) -> None:
        self._names = names
        self._rename = rename
        self._max_line_bytes = max_line_bytes

    def read(self, line: Line) -> Document:
        """The document of a line.

        Raises:
            RecordError: if there is none to index.
        """
        self.require_whole(line)
        document = parse_document(line.data, self._names, self._rename)
        if not has_text(document):
            keys = ", ".join(list(document.metadata)[:SHOWN_KEYS])
            names = ", ".join(self._names)
            raise RecordError(
                f"no text in any field: the model reads {names}; other keys here: {keys or 'none'}"
            )
        return document

    def require_whole(self, line: Line) -> None:
        """Refuses a line that is too long.

        Raises:
            RecordError: if it is.
        """
        if line.is_too_long:
            raise RecordError(f"line longer than {self._max_line_bytes} bytes: --max-line-bytes sets it")

    def known_id(self, line: Line) -> str | None:
        """The id of a line that is no document, where it can be read all the same."""
        try:
            value = parse_object(line.data)
        except RecordError:
            return None
        id_key = next((key for key, wanted in self._rename.items() if wanted == "_id"), "_id")
        identifier = value.get(id_key)
        return identifier if isinstance(identifier, str) else None
