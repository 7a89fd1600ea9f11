"""Reads input as bounded lines from files, directories or standard input, plain or compressed; no file is read whole."""

import io
import json
import os
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, cast

from glow.artifact import CURRENT_FILE
from glow.collection import bare_line
from glow.errors import InputError, RecordError
from glow_index_builder.input.files import FILES, kind_of, require_reader
from glow_index_builder.input.formats import (
    ARROW,
    GZIP,
    PARQUET,
    ZSTD,
    decoded,
    decompressed,
    format_of,
    require_package,
)
from glow_index_builder.input.json_input import JSON_LINES, is_one_object_a_line, json_items, known_forms
from glow_index_builder.input.lines import Line
from glow_index_builder.input.parsers import file_parsers, rows_of
from glow_index_builder.input.tables import TABLES, TextFormat, TypeGuesses, table_rows
from glow_index_builder.objects import RemoteFile, is_remote, list_remote

STDIN = "-"
CORPUS_FILE = "corpus.jsonl"
TEXTS = (*JSON_LINES, ".json", *TABLES)
MAY_BE_TABLES = {"", ".txt", ".tab", ".psv", ".dat"}
"""Endings of files that are tables if their delimiter is given."""
ARROW_STREAM = ".arrows"
"""Arrow's streaming format; it has no magic bytes, so its suffix decides."""
_LINES = (f"{text}{packed}" for packed in ("", ".gz", ".zst") for text in TEXTS)
ENDINGS = (*_LINES, ".parquet", ".arrow", ".feather", ARROW_STREAM)
JSON = (".json", ".json.gz", ".json.zst")
"""Below other files these are settings more often than documents."""
SKIP_BYTES = 1 << 16
MAGIC_BYTES = 4
AS_UTF8 = TextFormat()


@dataclass(frozen=True, slots=True)
class Source:
    """One input file, local or remote; standard input if `path` is None."""

    name: str  # its path in the input directory, or its own name
    path: Path | RemoteFile | None
    leads_out: bool = False  # whether it is a link out of that directory, which is not followed but rejected
    base_url: str = ""  # comes before the name in the document's `url`, if the file is a document
    is_plain: bool = False  # whether it has lines, whatever its name is
    text: TextFormat = AS_UTF8
    copy: Any = None  # the temporary file that holds what a pipe gave

    @property
    def size_bytes(self) -> int | None:
        """Total bytes of its lines; None if not known in advance (a pipe, a compressed file, a document)."""
        identity = self.identity
        if identity is None or self.leads_out or self._is_document or self._format():
            return None
        return identity[1] or None

    @property
    def identity(self) -> tuple[str, int, int | str] | None:
        """Path, size and modification time; a file with equal values counts as unchanged. None for a pipe."""
        if isinstance(self.path, RemoteFile):
            identity = self.path.identity
            return identity if identity[2] else None
        if not self.path or self.copy or not self.path.is_file():
            return None
        status = self.path.stat()
        return str(self.path.resolve()), status.st_size, status.st_mtime_ns

    def check(self) -> None:
        """Refuses a file that cannot be read, before any work."""
        if self.leads_out:
            return
        if self._is_document:
            require_reader(self.name)
            file_parsers[kind_of(self.name).parser].start()
        elif self._is_file:
            require_package(ARROW if self.name.lower().endswith(ARROW_STREAM) else self._format(), self.name)

    def lines(self, max_line_bytes: int) -> Iterator[Line]:
        """Yields the lines that are not blank."""
        for line in self._lines(max_line_bytes):
            if line.is_too_long or line.fault or line.data.strip():
                yield line

    def _lines(self, max_line_bytes: int) -> Iterator[Line]:
        if self.leads_out:
            line = json.dumps({"_id": self.name}).encode()
            return iter([Line(1, line, 0, fault="a link out of the input directory; copy the file")])
        if not self._is_file:
            return self._streamed(max_line_bytes)
        if self._is_document:
            return self._documents(max_line_bytes)
        kinds = {PARQUET: "parquet", ARROW: "arrow"}
        kind = "stream" if self.name.lower().endswith(ARROW_STREAM) else kinds.get(self._format())
        if kind is None:
            return self._streamed(max_line_bytes)
        return rows_of(kind, self.name, cast(Path | RemoteFile, self.path), max_line_bytes)

    @property
    def is_table(self) -> bool:
        """Whether it is CSV or a like, by its name or because its delimiter is given."""
        plain = _bare_name(self.name)
        return plain.endswith(TABLES) or bool(self.text.delimiter and Path(plain).suffix in MAY_BE_TABLES)

    def to_read_twice(self) -> "Source":
        """This source, or a copy of a pipe in a temporary file."""
        if self._is_file:
            return self
        copy = self._copied()  # lives as long as the source
        return replace(self, path=Path(copy.name), copy=copy)

    def _copied(self) -> Any:
        """A temporary file with the same bytes and ending."""
        copy = NamedTemporaryFile(suffix=Path(self.name).suffix)
        with self._reported_open() as file:
            shutil.copyfileobj(file, copy)
        copy.flush()
        return copy

    @property
    def _is_document(self) -> bool:
        return not self.is_plain and not self.is_table and self._is_file and self.name.lower().endswith(FILES)

    @property
    def _is_file(self) -> bool:
        return isinstance(self.path, RemoteFile) or bool(self.path and self.path.is_file())

    def _open(self) -> io.BufferedReader:
        if self.path:
            return self.path.open() if isinstance(self.path, RemoteFile) else self.path.open("rb")
        file: Any = sys.stdin.buffer  # the streams of tests lack `peek`
        return cast(io.BufferedReader, file if hasattr(file, "peek") else io.BufferedReader(file))

    def _documents(self, max_line_bytes: int) -> Iterator[Line]:
        """The documents of a page or an office file; a fault has the file's name as its id."""
        with ExitStack() as stack:
            is_local = isinstance(self.path, Path)
            path = cast(Path, self.path) if is_local else Path(stack.enter_context(self._copied()).name)
            status = path.stat() if path.exists() else None
            size = status.st_size if status else 0
            modified = (
                datetime.fromtimestamp(int(status.st_mtime), UTC).isoformat() if status and is_local else ""
            )
            request = {"name": self.name, "path": str(path), "size": size, "modified": modified}
            request |= {"base_url": self.base_url, "max_line_bytes": max_line_bytes}
            id_line = json.dumps({"_id": self.name}).encode()
            lines = file_parsers[kind_of(self.name).parser].lines(request)
            for number, each in enumerate(lines, start=1):
                read_bytes = size if number == 1 else 0
                if isinstance(each, RecordError):
                    yield Line(number, id_line, read_bytes, fault=str(each))
                else:
                    yield Line(number, each, read_bytes, len(each) > max_line_bytes)

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
                plain = decoded(decompressed(cast(BinaryIO, file), kind, self.name), self.text.encoding)
                if self.is_table:
                    lines = table_rows(plain, self.text, self.name, max_line_bytes)
                else:
                    lines = self._objects(plain, max_line_bytes)
                for line in lines:
                    number = line.number
                    yield line
            except (OSError, EOFError, zlib.error) as error:
                reason = getattr(error, "strerror", None) or error
                if kind not in (GZIP, ZSTD):
                    raise InputError(f"cannot read {self.name}: {reason}") from error
                raise InputError(
                    f"{self.name} is damaged or cut off after line {number}: {reason}; fetch it again"
                ) from error

    def _objects(self, file: BinaryIO, max_line_bytes: int) -> Iterator[Line]:
        if self.is_plain:
            return _bounded_lines(file, max_line_bytes)
        has_lines = _bare_name(self.name).endswith(JSON_LINES) or is_one_object_a_line(file)
        lines = _bounded_lines(file, max_line_bytes)
        return known_forms(lines if has_lines else json_items(file, self.name, max_line_bytes))

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


class Sources(list[Source]):
    """The input files of a command."""

    def __init__(self, sources: Iterable[Source] = (), skipped: Mapping[str, int] | None = None) -> None:
        super().__init__(sources)
        self.skipped = dict(skipped or {})  # ending -> number of files that GLOW does not read


def open_sources(
    source: str, exclude: Sequence[str] = (), base_url: str = "", text: TextFormat | None = None
) -> Sources:
    """The input files that `--input` names: of a directory, its `corpus.jsonl`, or else all files that GLOW reads.

    Hidden ones are left out, those that a pattern of `exclude` names, and JSON below other files.
    """
    sources = _sources(source, exclude, base_url)
    sources[:] = [replace(each, text=text or each.text) for each in sources]
    for each in sources:
        each.check()
    return sources


def open_lines(source: str) -> Sources:
    """Standard input or one file, as lines whatever its name is."""
    if source == STDIN or is_remote(source) or Path(source).is_dir():
        return open_sources(source)
    return Sources(Source(each.name, each.path, is_plain=True) for each in _sources(source, (), ""))


def _sources(source: str, exclude: Sequence[str], base_url: str) -> Sources:
    if source == STDIN:
        return Sources([Source("stdin", None)])
    if is_remote(source):
        remote = list_remote(source)
        if remote is None:
            return Sources([Source(RemoteFile(source).name, RemoteFile(source), base_url=base_url)])
        start = len(source.rstrip("/")) + 1
        named = ((each.url[start:], each) for each in remote)
        files = {name: each for name, each in named if not _is_left_out(name, exclude)}
        return _of_folder(source, files, Counter(), base_url)
    path = Path(source)
    if path.is_dir():
        return _of_folder(source, *_below(path, exclude), base_url)
    if not path.exists():
        raise InputError(
            f"no input at {path}: expected a file of documents (.jsonl, .csv, .parquet, .md, .html, .pdf, .docx …), "
            "a folder of them, or - for stdin"
        )
    return Sources([Source(path.name, path, base_url=base_url)])


def _below(folder: Path, exclude: Sequence[str]) -> tuple[dict[str, Path | RemoteFile], Counter[str]]:
    """The files of a directory by name, and its links that are not followed: to directories, or to nothing."""
    files: dict[str, Path | RemoteFile] = {}
    links = Counter[str]()
    for place, folders, names in os.walk(folder):
        below = Path(place).relative_to(folder)
        if CURRENT_FILE in names and place != str(folder):  # an index root
            folders.clear()
            continue
        folders[:] = sorted(each for each in folders if not _is_left_out((below / each).as_posix(), exclude))
        links["link to a folder"] += sum((Path(place) / each).is_symlink() for each in folders)
        for name in names:
            file = Path(place) / name
            if _is_left_out((below / name).as_posix(), exclude):
                continue
            if file.is_file():
                files[(below / name).as_posix()] = file
            elif file.is_symlink():
                links["broken link"] += 1
    return files, +links


def _is_left_out(name: str, exclude: Sequence[str]) -> bool:
    """Whether a path below the directory is hidden, or a pattern names it or a directory that holds it."""
    parts = name.split("/")
    paths = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    return any(each.startswith(".") for each in parts) or any(
        fnmatchcase(each, glob.rstrip("/")) for glob in exclude for each in (*parts, *paths)
    )


def _of_folder(
    folder: str, files: Mapping[str, Path | RemoteFile], skipped: Counter[str], base_url: str
) -> Sources:
    """Selects the input files of a directory."""
    corpora = (f"{CORPUS_FILE}{ending}" for ending in ("", ".gz", ".zst"))
    names = [name for name in corpora if name in files][:1]
    if not names:
        read = sorted(name for name in files if name.lower().endswith((*ENDINGS, *FILES)))
        names = [name for name in read if "/" not in name or not name.lower().endswith(JSON)] or read
        skipped += Counter(
            Path(name).suffix.lower() or "without ending" for name in files.keys() - set(names)
        )
    if not names:
        raise InputError(
            f"{folder} holds neither {CORPUS_FILE} nor any other file of {', '.join((*ENDINGS, *FILES))}"
        )
    inside, sources = Path(folder).resolve(), []
    for name in names:
        file = files[name]
        leads_out = isinstance(file, Path) and not file.resolve().is_relative_to(inside)
        sources.append(Source(name, file, leads_out, base_url))
    if all(each.leads_out for each in sources):
        raise InputError(f"{folder} holds only links out of it, which are not followed; copy the files")
    return Sources(sources, dict(skipped.most_common()))


def _bare_name(name: str) -> str:
    """A file's name without an ending of compression."""
    return name.lower().removesuffix(".gz").removesuffix(".zst")


def guess_types(
    sources: Sources, texts: Collection[str], given: Mapping[str, str], max_line_bytes: int
) -> dict[str, str]:
    """Types of the columns of all tables, which are read once for it; `sources` then have them."""
    guesses = TypeGuesses(texts)
    sources[:] = [each.to_read_twice() if each.is_table else each for each in sources]
    for each in sources:
        if each.is_table and not each.leads_out:
            for _ in replace(each, text=replace(each.text, types=guesses)).lines(max_line_bytes):
                pass
            guesses.end()
    types = guesses.types(given)
    sources[:] = [replace(each, text=replace(each.text, types=types)) for each in sources]
    return types


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
