"""The text of corpora as one stream of tokens in their order."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.artifact import file_sha256
from glow.collection import read_documents
from glow.errors import InputError
from glow.records import Document
from glow.text import WordPieces
from glow.training.run import parts_hash

__all__ = ["PieceStream", "make_stream", "read_texts"]

FIELDS = ("title", "anchor", "text")
"""Document fields to read, in this order: the document's own text, without queries."""
SUFFIXES_OF_DOCUMENTS = (".jsonl", ".ndjson")
TOLD_TEXTS = 2000


class PieceStream:
    """A written stream of tokens.

    Args:
        path: file of int32 tokens of all texts, each ended by [SEP].
        digest: hash of the corpora and the vocabulary.

    Attributes:
        pieces: int32 [n], memory-mapped.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self.digest = digest
        self.pieces: NDArray[np.int32] = np.memmap(path, np.int32, "r")

    def __len__(self) -> int:
        return len(self.pieces)


def read_texts(paths: Sequence[Path]) -> Iterator[str]:
    """Texts of corpora in order: one per document of JSON Lines (`.jsonl`, `.ndjson`) or paragraph of a plain file.

    Empty lines separate paragraphs.

    Raises:
        InputError: if a file cannot be read.
        RecordError: if a line is not a document; the message names file and line.
    """
    for path in paths:
        if path.suffix in SUFFIXES_OF_DOCUMENTS:
            yield from (_text_of(document) for document in read_documents(path, FIELDS))
        else:
            yield from _paragraphs(path)


def make_stream(
    paths: Sequence[Path],
    pieces: WordPieces,
    folder: Path,
    least: int,
    on_progress: Callable[[int], None] = lambda texts: None,
) -> PieceStream:
    """Writes the stream of corpora to `folder`, or opens the existing one.

    Args:
        paths: the corpora.
        pieces: the vocabulary.
        folder: directory of the stream, whose name has a hash of files and vocabulary.
        least: fewest tokens that it must hold.
        on_progress: called with the number of texts done.

    Raises:
        InputError: if a corpus cannot be read, or all hold fewer tokens.
    """
    try:
        parts = [*(file_sha256(path) for path in paths), file_sha256(pieces.vocabulary)]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    digest = parts_hash(parts)
    path = folder / f"pieces-{digest[:16]}.i32"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        with temporary.open("wb") as file:
            for number, text in enumerate(read_texts(paths), 1):
                file.write(np.array([*_pieces(text, pieces), pieces.sep_id], np.int32).tobytes())
                if number % TOLD_TEXTS == 0:
                    on_progress(number)
        temporary.replace(path)
    size = path.stat().st_size // np.dtype(np.int32).itemsize
    if size < least:
        names = ", ".join(path.name for path in paths)
        raise InputError(
            f"{names} holds {size:,} tokens, one sample takes {least:,}; give more text, or lower sequences or length"
        )
    return PieceStream(path, digest)


def _pieces(text: str, pieces: WordPieces) -> Iterator[int]:
    for word in pieces.words(text):
        yield from pieces.pieces(word)


def _text_of(document: Document) -> str:
    return ". ".join(text for values in document.fields.values() for text in values if text.strip())


def _paragraphs(path: Path) -> Iterator[str]:
    lines: list[str] = []
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.strip():
                    lines.append(line.strip())
                elif lines:
                    yield " ".join(lines)
                    lines = []
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if lines:
        yield " ".join(lines)
