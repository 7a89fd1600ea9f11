"""Reads input as bounded lines from files, directories or standard input, plain or compressed; no file is read whole."""

import io
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from glow.collection import bare_line
from glow.errors import InputError, RecordError
from glow_index_builder.input.formats import (
    ARROW,
    GZIP,
    PARQUET,
    ZSTD,
    decompressed,
    format_of,
    require_package,
)
from glow_index_builder.input.lines import Line
from glow_index_builder.input.pages import PAGES, require_reader
from glow_index_builder.input.parsers import page_parser, rows_of
from glow_index_builder.input.tables import DELIMITERS, table_rows
from glow_index_builder.objects import RemoteFile, is_remote, list_remote

STDIN = "-"
CORPUS_FILE = "corpus.jsonl"
TEXTS = (".jsonl", *DELIMITERS)
ARROW_STREAM = ".arrows"
"""Arrow's streaming format; it has no magic bytes, so its suffix decides."""
_LINES = (f"{text}{packed}" for packed in ("", ".gz", ".zst") for text in TEXTS)
ENDINGS = (*_LINES, ".parquet", ".arrow", ".feather", ARROW_STREAM)
SKIP_BYTES = 1 << 16
MAGIC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Source:
    """One input file, local or remote; standard input if `path` is None."""

    name: str  # its path in the input directory, or its own name
    path: Path | RemoteFile | None
    leads_out: bool = False  # whether it is a link out of that directory, which is not followed but rejected

    @property
    def size_bytes(self) -> int | None:
        """Total bytes of its lines; None if not known in advance (a pipe, a compressed file, a page)."""
        identity = self.identity
        if identity is None or self.leads_out or self.name.endswith(PAGES) or self._format():
            return None
        return identity[1] or None

    @property
    def identity(self) -> tuple[str, int, int | str] | None:
        """Path, size and modification time; a file with equal values counts as unchanged. None for a pipe."""
        if isinstance(self.path, RemoteFile):
            identity = self.path.identity
            return identity if identity[2] else None
        if not self.path or not self.path.is_file():
            return None
        status = self.path.stat()
        return str(self.path.resolve()), status.st_size, status.st_mtime_ns

    def check(self) -> None:
        """Refuses a file that cannot be read, before any work."""
        if self.leads_out:
            return
        if self.name.endswith(PAGES):
            require_reader(self.name)
            page_parser.start()
        elif self._is_file:
            require_package(ARROW if self.name.endswith(ARROW_STREAM) else self._format(), self.name)

    def lines(self, max_line_bytes: int) -> Iterator[Line]:
        """Yields the lines that are not blank."""
        for line in self._lines(max_line_bytes):
            if line.is_too_long or line.fault or line.data.strip():
                yield line

    def _lines(self, max_line_bytes: int) -> Iterator[Line]:
        if self.leads_out:
            return iter([Line(1, b"", 0, fault="a link out of the input directory; copy the file")])
        if not self._is_file:
            return self._streamed(max_line_bytes)
        if self.name.endswith(PAGES):
            return self._page(max_line_bytes)
        if self.name.endswith(ARROW_STREAM) or self._format() in (PARQUET, ARROW):
            return self._rows(max_line_bytes)
        return self._streamed(max_line_bytes)

    @property
    def _is_file(self) -> bool:
        return isinstance(self.path, RemoteFile) or bool(self.path and self.path.is_file())

    def _open(self) -> io.BufferedReader:
        if isinstance(self.path, RemoteFile):
            return self.path.open()
        return self.path.open("rb") if self.path else _standard_input()

    def _page(self, max_line_bytes: int) -> Iterator[Line]:
        with self._reported_open() as file:
            data = file.read(max_line_bytes + 1)
        if len(data) > max_line_bytes:
            yield Line(1, data, len(data), is_too_long=True)
            return
        try:
            line = Line(1, page_parser.line(self.name, data), len(data))
        except RecordError as error:
            line = Line(1, data, len(data), fault=str(error))
        yield line

    def _rows(self, max_line_bytes: int) -> Iterator[Line]:
        if self.name.endswith(ARROW_STREAM):
            kind = "stream"
        else:
            kind = "arrow" if self._format() == ARROW else "parquet"
        return rows_of(kind, self.name, cast(Path | RemoteFile, self.path), max_line_bytes)

    def _streamed(self, max_line_bytes: int) -> Iterator[Line]:
        number, kind = 0, b""
        with ExitStack() as stack:
            try:
                file = stack.enter_context(self._open())
                kind = format_of(file.peek(MAGIC_BYTES)[:MAGIC_BYTES], self.name)
                if kind in (PARQUET, ARROW):
                    raise InputError(
                        f"{self.name} is {'Parquet' if kind == PARQUET else 'Arrow'}, which cannot be read from a pipe; "
                        "write it to a file"
                    )
                plain = decompressed(cast(BinaryIO, file), kind, self.name)
                delimiter = _delimiter(self.name)
                rows = (
                    table_rows(plain, delimiter, self.name, max_line_bytes)
                    if delimiter
                    else _bounded_lines(plain, max_line_bytes)
                )
                for line in rows:
                    number = line.number
                    yield line
            except (OSError, EOFError, zlib.error) as error:
                reason = getattr(error, "strerror", None) or error
                if kind not in (GZIP, ZSTD):
                    raise InputError(f"cannot read {self.name}: {reason}") from error
                raise InputError(
                    f"{self.name} is damaged or cut off after line {number}: {reason}; fetch it again"
                ) from error

    @contextmanager
    def _reported_open(self) -> Iterator[io.BufferedReader]:
        """Opens the file; read errors are reported with its name."""
        try:
            with self._open() as file:
                yield file
        except OSError as error:
            raise InputError(f"cannot read {self.name}: {error.strerror or error}") from error

    def _format(self) -> bytes:
        """The file's format; see `format_of`."""
        with self._reported_open() as file:
            return format_of(file.read(MAGIC_BYTES), self.name)


def open_sources(source: str) -> list[Source]:
    """The input files that `--input` names.

    A directory in BEIR's layout means its `corpus.jsonl`. Any other means its `*.jsonl`, `*.csv` and `*.tsv` files,
    also with `.gz` or `.zst`, and its Parquet and Arrow files; without these, all Markdown and HTML pages below it.
    """
    sources = _found(source)
    for each in sources:
        each.check()
    return sources


def _found(source: str) -> list[Source]:
    if source == STDIN:
        return [Source("stdin", None)]
    if is_remote(source):
        remote = list_remote(source)
        if remote is None:
            return [Source(RemoteFile(source).name, RemoteFile(source))]
        start = len(source.rstrip("/")) + 1
        return _of_folder(source, {each.url[start:]: each for each in remote})
    path = Path(source)
    if not path.is_dir():
        if not path.exists():
            raise InputError(
                f"no input at {path}: expected a .jsonl, .csv, .tsv, .parquet or .arrow file, a folder of them or of pages, "
                "or - for stdin"
            )
        return [Source(path.name, path)]
    plain = {file.name: file for file in path.iterdir() if file.is_file()}
    if any(name.endswith(ENDINGS) for name in plain):
        return _of_folder(source, plain)
    files = {str(file.relative_to(path)): file for file in path.rglob("*") if file.is_file()}
    return _of_folder(source, files)


def _leads_out(file: Path, folder: Path) -> bool:
    """Whether a link leads from a directory's file to a place outside of the directory."""
    return not file.resolve().is_relative_to(folder.resolve())


def _of_folder(folder: str, files: Mapping[str, Path | RemoteFile]) -> list[Source]:
    """Selects the input files of a directory."""
    names = [name for name in (f"{CORPUS_FILE}{ending}" for ending in ("", ".gz", ".zst")) if name in files][
        :1
    ]
    names = names or sorted(name for name in files if "/" not in name and name.endswith(ENDINGS))
    names = names or sorted(name for name in files if name.endswith(PAGES))
    if not names:
        raise InputError(
            f"{folder} holds neither {CORPUS_FILE} nor any other file of {', '.join((*ENDINGS, *PAGES))}"
        )
    sources = [
        Source(name, file, isinstance(file, Path) and _leads_out(file, Path(folder)))
        for name, file in ((name, files[name]) for name in names)
    ]
    if all(each.leads_out for each in sources):
        raise InputError(f"{folder} holds only links out of it, which are not followed; copy the files")
    return sources


def _standard_input() -> io.BufferedReader:
    """Standard input with `peek`, which the streams of tests lack."""
    file = sys.stdin.buffer
    return cast(
        io.BufferedReader, file if hasattr(file, "peek") else io.BufferedReader(cast(io.RawIOBase, file))
    )


def _delimiter(name: str) -> str:
    """The delimiter of a table; "" for lines of JSON."""
    plain = name.removesuffix(".gz").removesuffix(".zst")
    return next((mark for ending, mark in DELIMITERS.items() if plain.endswith(ending)), "")


def _bounded_lines(file: BinaryIO, max_line_bytes: int) -> Iterator[Line]:
    number = 0
    while data := file.readline(max_line_bytes + 2):  # plus the line ending
        number += 1
        read_bytes = len(data)
        content = bare_line(data, is_first=number == 1)
        is_too_long = len(content) > max_line_bytes
        while not data.endswith(b"\n") and (data := file.readline(SKIP_BYTES)):
            read_bytes += len(data)
            is_too_long = is_too_long or bool(data.rstrip(b"\r\n"))
        yield Line(number, content, read_bytes, is_too_long)
