"""Runs third-party parsers in a separate process, so that no file can crash or stall a build, or take its memory.

    python -m glow_index_builder.input.child pages|pdf|office|rows

A parser that crashes ends only this process. The system limits a document's CPU time and this process's memory.
`pages`, `pdf` and `office` handle one file after another. They parse in a fork of themselves, so that the file after
a crash need not wait for imports. `rows` reads one file. All write each document or row as they read it.

Frames on the two pipes are a kind, a length and the payload. Nothing is pickled: a parser that malicious input
controls can send wrong rows, but nothing else.
"""

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from glow.errors import GlowError, RecordError
from glow_index_builder.input.files import KINDS, file_lines
from glow_index_builder.input.lines import Line
from glow_index_builder.input.tables import arrow_rows, parquet_rows
from glow_index_builder.objects import RemoteFile

LINE, FAULT, DONE, ENDED = b"L", b"F", b"D", b"E"
"""A row or document; an error's type and text, or a document's fault; the file's end; the signal that ended a parser."""
_HEAD = struct.Struct("!cI")
_LINE = struct.Struct("!QQ?I")


def write_frame(kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """A frame in two chunks, so that long rows are not copied."""
    return _HEAD.pack(kind, len(payload)), payload


def read_frame(
    read: Callable[[int], bytes],  # reads the given number of bytes, fewer only at the end
) -> tuple[bytes, bytes] | None:
    """The next frame's kind and payload; None if the process has ended before or within it."""
    head = read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    kind, size = _HEAD.unpack(head)
    payload = read(size)
    return (kind, payload) if len(payload) == size else None


def pack_line(line: Line) -> bytes:
    """Serializes a line."""
    fault = line.fault.encode(errors="replace")
    return _LINE.pack(line.number, line.read_bytes, line.is_too_long, len(fault)) + fault + line.data


def unpack_line(payload: bytes) -> Line:
    """Deserializes a line."""
    number, read_bytes, is_too_long, size = _LINE.unpack_from(payload)
    start = _LINE.size
    fault = payload[start : start + size].decode(errors="replace")
    return Line(number, payload[start + size :], read_bytes, is_too_long, fault)


def read_exactly(descriptor: int, size: int) -> bytes:
    """Reads the given number of bytes, fewer at the end; unbuffered, so that a process that takes over misses none."""
    parts = []
    while size and (part := os.read(descriptor, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


PAGE_CPU_S = 1.0
"""CPU time limit for each started megabyte of a page; a megabyte of real prose takes 0.4 to 0.8 s."""
PDF_PAGE_CPU_S = 5.0
"""CPU time limit for one page of a PDF; a page of text takes about a millisecond."""
OFFICE_CPU_S = 20.0
"""CPU time limit for an office file; 900 kB of text take 0.5 s, a sheet of 20,000 rows 0.6 s."""
MEMORY_MB = 256
"""Memory limit of a parser, in addition to its code."""
OFFICE_MEMORY_MB = 1024
"""Memory limit for office files, whose pictures are read, too."""
ARROW_RATIO = 8
"""An Arrow batch is read whole, so the limit grows by this many times the file size: LZ4 shrinks text to a third."""
IDLE_S = 10.0
"""The process ends after so long without a file; the next file starts a new one."""


PARSERS = {
    "pages": (PAGE_CPU_S, MEMORY_MB),
    "pdf": (PDF_PAGE_CPU_S, MEMORY_MB),
    "office": (OFFICE_CPU_S, OFFICE_MEMORY_MB),
}
"""The processes that parse files, by the name that `files.KINDS` gives them, and their limits."""


def cpu_limit(parser: str, size_bytes: int) -> float:
    """CPU seconds for each document of a file."""
    return PARSERS[parser][0] * (1 + size_bytes // 1_000_001 if parser == "pages" else 1)


def main() -> None:
    """Serves files, or sends the rows of one file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    out = os.dup(1)
    os.dup2(2, 1)  # keeps a package's own output from mixing with the frames
    if sys.argv[1] in PARSERS:
        _serve_files(out, sys.argv[1])
    else:
        with contextlib.suppress(BrokenPipeError), os.fdopen(out, "wb") as file:
            _send_rows(json.loads(sys.stdin.buffer.read()), file)


def _serve_files(out: int, parser: str) -> None:
    for package in (each for kind in KINDS.values() if kind.parser == parser for each in kind.packages):
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    while True:
        process = os.fork()
        if not process:
            _answer_files(out, parser)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code == 0:
            return
        os.write(out, b"".join(write_frame(ENDED, str(-code).encode())))


def _answer_files(out: int, parser: str) -> NoReturn:
    """In the fork: handles files until there are no more; the parent reports any other end."""
    memory_mb = PARSERS[parser][1]
    try:
        _limit_memory(memory_mb << 20)
        while select.select([0], [], [], IDLE_S)[0] and (number := read_exactly(0, 4)):
            request = json.loads(read_exactly(0, int.from_bytes(read_exactly(0, 4))))
            lines, kind = file_lines(request), LINE
            while kind != DONE:
                try:
                    signal.setitimer(signal.ITIMER_PROF, cpu_limit(parser, request["size"]))
                    line = next(lines, None)
                    kind = DONE if line is None else LINE
                    if isinstance(line, RecordError):
                        raise line
                    frame = write_frame(kind, number + (line or b""))
                except (RecordError, MemoryError, OSError) as error:  # after it, the lines end
                    reason = str(error) or f"its parser takes more than {memory_mb} MiB"
                    frame = write_frame(FAULT, number + reason.encode(errors="replace"))
                signal.setitimer(signal.ITIMER_PROF, 0.0)
                with os.fdopen(os.dup(out), "wb") as file:
                    file.writelines(frame)
        os._exit(0)
    finally:
        os._exit(1)


def _send_rows(request: Mapping[str, Any], out: BinaryIO) -> None:
    name, most, kind = request["name"], request["max_line_bytes"], request["kind"]
    path = Path(request["path"]) if "path" in request else RemoteFile(request["url"], request["within_s"])
    try:
        with path.open("rb") if isinstance(path, Path) else path.open() as file:
            size_bytes = file.seek(0, os.SEEK_END) if kind != "parquet" else 0
            file.seek(0)
            if kind == "parquet":
                rows = parquet_rows(file, name, most)
            else:
                rows = arrow_rows(file, name, most, is_stream=kind == "stream")
            _limit_memory((MEMORY_MB << 20) + ARROW_RATIO * size_bytes)
            for line in rows:
                out.writelines(write_frame(LINE, pack_line(line)))
        out.writelines(write_frame(DONE, b""))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        out.writelines(
            write_frame(FAULT, f"InputError cannot read {name}: {error.strerror or error}".encode())
        )
    except GlowError as error:
        out.writelines(write_frame(FAULT, f"{type(error).__name__} {error}".encode(errors="surrogateescape")))


def _limit_memory(more_bytes: int) -> None:
    """Limits this process's additional memory; only Linux reports its present use."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    except OSError:
        return
    limit = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


if __name__ == "__main__":
    main()
