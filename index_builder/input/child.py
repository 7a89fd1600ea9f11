"""Runs third-party parsers in a separate process, so that no file can crash or stall a build, or take its memory.

    python -m glow_index_builder.input.child pages|rows

A parser that crashes ends only this process. The system limits a page's CPU time and this process's memory.
`pages` handles one page after another. It parses in a fork of itself, so that the page after a crash need not wait
for imports. `rows` reads one file and writes its rows as it reads them.

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
from glow_index_builder.input.lines import Line
from glow_index_builder.input.pages import PAGE_PACKAGES, page_line
from glow_index_builder.input.tables import arrow_rows, parquet_rows
from glow_index_builder.objects import RemoteFile

LINE, FAULT, DONE, ENDED = b"L", b"F", b"D", b"E"
"""A row or page; an error's type and text, or a page's fault; the file's end; the signal that ended a parser."""
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
"""CPU time limit for one page; a megabyte of real prose takes 0.4 to 0.8 s."""
MEMORY_MB = 256
"""Memory limit of a parser, in addition to its code."""
ARROW_RATIO = 8
"""An Arrow batch is read whole, so the limit grows by this many times the file size: LZ4 shrinks text to a third."""
IDLE_S = 10.0
"""The process ends after so long without a page; the next page starts a new one."""


def main() -> None:
    """Serves pages, or sends the rows of one file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    out = os.dup(1)
    os.dup2(2, 1)  # keeps a package's own output from mixing with the frames
    if sys.argv[1] == "pages":
        _serve_pages(out)
    else:
        with contextlib.suppress(BrokenPipeError), os.fdopen(out, "wb") as file:
            _send_rows(json.loads(sys.stdin.buffer.read()), file)


def _serve_pages(out: int) -> None:
    for package in PAGE_PACKAGES.values():
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    while True:
        process = os.fork()
        if not process:
            _answer_pages(out)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code == 0:
            return
        os.write(out, b"".join(write_frame(ENDED, str(-code).encode())))


def _answer_pages(out: int) -> NoReturn:
    """In the fork: handles pages until there are no more; the parent reports any other end."""
    try:
        _limit_memory(MEMORY_MB << 20)
        while select.select([0], [], [], IDLE_S)[0] and (number := read_exactly(0, 4)):
            name = read_exactly(0, int.from_bytes(read_exactly(0, 4))).decode(errors="surrogatepass")
            data = read_exactly(0, int.from_bytes(read_exactly(0, 4)))
            signal.setitimer(signal.ITIMER_PROF, PAGE_CPU_S)
            try:
                frame = write_frame(LINE, number + page_line(name, data))
            except (RecordError, MemoryError) as error:
                reason = str(error) or f"{name} is not a page: its parser takes more than {MEMORY_MB} MiB"
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
