"""Input files as bounded lines: a file, a folder or standard input, read once and never whole."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from glow.errors import InputError
from index_builder.options import STDIN

__all__ = ["Line", "Source", "open_sources"]

CORPUS_FILE = "corpus.jsonl"
SKIP_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input.

    Attributes:
        number: counted from 1.
        data: the line without its end; only its start where `is_too_long`.
        read_bytes: how far this line moved through the file.
        is_too_long: whether it had more bytes than allowed.
    """

    number: int
    data: bytes
    read_bytes: int
    is_too_long: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """One input file, or standard input where `path` is None."""

    name: str
    path: Path | None

    @property
    def size_bytes(self) -> int | None:
        """Size of a file; None for what has none (standard input, a pipe)."""
        return self.path.stat().st_size or None if self.path and self.path.is_file() else None

    def lines(self, max_line_bytes: int) -> Iterator[Line]:
        """Yields the lines that hold more than white space.

        Args:
            max_line_bytes: a longer line is passed over in small steps, so it takes no memory.

        Raises:
            InputError: the file cannot be read.
        """
        try:
            with self.path.open("rb") if self.path else nullcontext(sys.stdin.buffer) as file:
                for line in _bounded_lines(file, max_line_bytes):
                    if line.is_too_long or line.data.strip():
                        yield line
        except OSError as error:
            raise InputError(f"cannot read {self.name}: {error.strerror or error}") from error


def open_sources(source: str) -> list[Source]:
    """The input files that `--input` means.

    A folder in BEIR's layout is its `corpus.jsonl`, any other folder all its `*.jsonl` by name.

    Raises:
        InputError: there is no such file, or the folder holds none.
    """
    if source == STDIN:
        return [Source("stdin", None)]
    path = Path(source)
    if not path.is_dir():
        if not path.exists():
            raise InputError(f"no input at {path}: expected a .jsonl file, a folder of them, or - for stdin")
        return [Source(path.name, path)]
    corpus = path / CORPUS_FILE
    files = [corpus] if corpus.is_file() else sorted(path.glob("*.jsonl"))
    if not files:
        raise InputError(f"{path} holds neither {CORPUS_FILE} nor any other *.jsonl file")
    return [Source(file.name, file) for file in files]


def _bounded_lines(file: BinaryIO, max_line_bytes: int) -> Iterator[Line]:
    number = 0
    while data := file.readline(max_line_bytes + 2):  # room for the line's end
        number += 1
        read_bytes, content = len(data), data.rstrip(b"\r\n")
        is_too_long = len(content) > max_line_bytes
        while not data.endswith(b"\n") and (data := file.readline(SKIP_BYTES)):
            read_bytes += len(data)
            is_too_long = is_too_long or bool(data.rstrip(b"\r\n"))
        yield Line(number, content, read_bytes, is_too_long)
