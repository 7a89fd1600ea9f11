"""A large `corpus.jsonl` as a sequence of documents on disk."""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, overload

from glow.collection import bare_line, has_text, parse_document
from glow.errors import InputError, IntegrityError, RecordError
from glow.records import Document

__all__ = ["CorpusFile"]


class CorpusFile(Sequence[Document]):
    """The documents of `read_documents`, each parsed on access; iteration reads the file sequentially.

    An initial pass finds their byte offsets and ids, which take 16 bytes per document plus its id.

    Args:
        path: the file.
        field_names: keys that are text fields.

    Attributes:
        ids: ids of the documents, in file order.

    Raises:
        InputError: if the file cannot be read.
        RecordError: if a line is not a document; the message names file and line.
    """

    def __init__(self, path: Path, field_names: Sequence[str]) -> None:
        self.ids: list[str] = []
        self._path, self._field_names = path, tuple(field_names)
        self._offsets, self._lengths = array("q"), array("q")
        try:
            with path.open("rb") as file:
                self._scan(file)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error

    def __len__(self) -> int:
        """Number of documents with text."""
        return len(self._offsets)

    @overload
    def __getitem__(self, number: int) -> Document: ...
    @overload
    def __getitem__(self, number: slice) -> list[Document]: ...
    def __getitem__(self, number: int | slice) -> Document | list[Document]:
        """Reads one document or several; each call opens the file, which is safe with forks and threads."""
        if isinstance(number, slice):
            return [self[position] for position in range(*number.indices(len(self)))]
        with self._path.open("rb", buffering=0) as file:
            return self._read(file, range(len(self))[number])

    def __iter__(self) -> Iterator[Document]:
        """Yields all documents in file order."""
        with self._path.open("rb") as file:
            for position in range(len(self)):
                yield self._read(file, position)

    def _scan(self, file: BinaryIO) -> None:
        offset = 0
        for number, line in enumerate(file, start=1):
            content = bare_line(line, is_first=number == 1)
            if content.strip():
                try:
                    document = parse_document(content, self._field_names)
                except RecordError as error:
                    raise RecordError(f"{self._path.name} line {number}: {error}") from error
                if has_text(document):
                    self.ids.append(document.id)
                    self._offsets.append(offset)
                    self._lengths.append(len(line))
            offset += len(line)

    def _read(self, file: BinaryIO, position: int) -> Document:
        offset = self._offsets[position]
        file.seek(offset)
        line = file.read(self._lengths[position])
        try:
            document = parse_document(bare_line(line, is_first=offset == 0), self._field_names)
        except RecordError:
            document = None
        if document is None or document.id != self.ids[position]:
            raise IntegrityError(f"{self._path} has changed since it was opened; start again")
        return document
