"""Runs third-party parsers in a separate process, so that no file can crash or stall a build, or take its memory.

    python -m glow_index_builder.input.child pages|rows

A parser that crashes ends only this process. The system limits a page's CPU time and this process's memory.
`pages` handles one page after another. It parses in a fork of itself, so that the page after a crash need not wait
for imports. `rows` reads one file and writes its rows as it reads them. `glow_index_builder.input.frames` describes
the data on the two pipes.
"""

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from glow.errors import GlowError, RecordError
from glow_index_builder.input.columnar import arrow_rows, parquet_rows
from glow_index_builder.input.frames import DONE, ENDED, FAULT, LINE, pack_line, read_exactly, write_frame
from glow_index_builder.input.pages import PAGE_PACKAGES, page_line
from glow_index_builder.objects import RemoteFile

__all__ = ["IDLE_S", "MEMORY_MB", "PAGE_CPU_S"]

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
