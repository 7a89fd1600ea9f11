"""Runs third-party parsers in separate processes, so that no file can crash or stall a build, or take its memory.

    python -m glow_index_builder.input.parsers pages|pdf|office|rows

The system limits a document's CPU time and a process's memory. `pages`, `pdf` and `office` handle one file after
another, in a fork of themselves, so that the file after a crash need not wait for imports. `rows` reads one file.
Frames on the two pipes are a kind, a length and the payload; nothing is pickled, so bad input can only give wrong rows.
"""

import atexit
import importlib
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from glow.errors import DependencyError, GlowError, InputError, RecordError
from glow_index_builder.input.files import KINDS, file_lines
from glow_index_builder.input.lines import Line
from glow_index_builder.input.tables import arrow_rows, parquet_rows
from glow_index_builder.objects import RemoteFile

LINE, FAULT, DONE, ENDED = b"L", b"F", b"D", b"E"
"""A row or document; an error's type and text, or a document's fault; the file's end; the signal that ended a parser."""
WALL_S = 60.0
"""A parser that neither responds nor uses the CPU for so long is ended, too."""
IDLE_S = 10.0
"""A process ends after so long without a file; the next file starts a new one."""
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
PARSERS = {
    "pages": (PAGE_CPU_S, MEMORY_MB),
    "pdf": (PDF_PAGE_CPU_S, MEMORY_MB),
    "office": (OFFICE_CPU_S, OFFICE_MEMORY_MB),
}
"""The processes that parse files, by the name that `files.KINDS` gives them, and their limits."""
_ERRORS: dict[str, type[GlowError]] = {"InputError": InputError, "DependencyError": DependencyError}
_FEW = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment of the parsers: memory that counts against the system's limit, and few threads."""
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


def read_exactly(descriptor: int, size: int) -> bytes:
    """Reads the given number of bytes, fewer at the end; unbuffered, so that a process that takes over misses none."""
    parts = []
    while size and (part := os.read(descriptor, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def cpu_limit(parser: str, size_bytes: int) -> float:
    """CPU seconds for each document of a file."""
    return PARSERS[parser][0] * (1 + size_bytes // 1_000_001 if parser == "pages" else 1)


def _start(kind: str, command: Sequence[str] = ("-P", "-m", __name__)) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(str(Path(each).absolute()) for each in sys.path)
    return subprocess.Popen(  # noqa: S603 - a module of ours
        [sys.executable, *command, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_FEW, "PYTHONPATH": paths},
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            cast(BinaryIO, pipe).close()
    process.wait()


class FileParser:
    """Parses files in a process that lives while files arrive, and is replaced if it ends."""

    def __init__(self, name: str) -> None:
        self._name = name  # one of `PARSERS`
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._number = b""  # of the current file, which its frames begin with
        atexit.register(self.close)

    def lines(
        self,
        request: Mapping[str, Any],  # see `file_lines`
    ) -> Iterator[bytes | RecordError]:
        """Yields the documents and faults of a file, as `file_lines` does."""
        with self._lock:
            frame = self._ask(request) or self._ask(request)  # the first may meet a process that ends
            while frame is not None and frame[0] in (LINE, FAULT):
                kind, payload = frame
                yield payload if kind == LINE else RecordError(payload.decode(errors="replace"))
                frame = self._next_frame()
            if frame is None:
                yield RecordError("its parser ended unexpectedly")
            elif frame[0] == ENDED and int(frame[1]) == signal.SIGPROF:
                limit_s = cpu_limit(self._name, request["size"])
                yield RecordError(f"its parser takes more than {limit_s:g} s")
            elif frame[0] == ENDED:
                yield RecordError(f"its parser crashed ({_signal_name(int(frame[1]))})")

    def start(self) -> None:
        """Starts the process before the first file, so that it loads while the model does."""
        with self._lock:
            self._process = self._process or _start(self._name)

    def close(self) -> None:
        """Ends the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _ask(self, request: Mapping[str, Any]) -> tuple[bytes, bytes] | None:
        """The first frame of a file; None if the process ended before."""
        self._process = self._process or _start(self._name)
        data = json.dumps(request).encode()
        self._number = ((int.from_bytes(self._number) + 1) % 2**32).to_bytes(4)
        try:
            requests = cast(BinaryIO, self._process.stdin)
            requests.write(self._number + len(data).to_bytes(4) + data)
            requests.flush()
        except BrokenPipeError:
            self.close()
            return None
        return self._next_frame()

    def _next_frame(self) -> tuple[bytes, bytes] | None:
        """The next frame of the current file; None if the process ended, or is ended because it is silent."""
        answers = cast(BinaryIO, cast(subprocess.Popen[bytes], self._process).stdout).fileno()
        while select.select([answers], [], [], WALL_S)[0]:
            frame = read_frame(partial(read_exactly, answers))  # unbuffered for `select`
            if frame is None:
                break
            if frame[0] == ENDED:
                return frame
            if frame[1].startswith(self._number):
                return frame[0], frame[1][len(self._number) :]
            # Otherwise it is from an earlier file, which was not read to its end.
        self.close()
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit status {-number}"


file_parsers = {name: FileParser(name) for name in PARSERS}
"""The parsers of this process; each starts with its first file."""


def rows_of(kind: str, name: str, path: Path | RemoteFile, max_line_bytes: int) -> Iterator[Line]:
    """Yields the rows of a file, which a separate process reads."""
    place = (
        {"url": path.url, "within_s": path.within_s} if isinstance(path, RemoteFile) else {"path": str(path)}
    )
    request = {"kind": kind, "name": name, "max_line_bytes": max_line_bytes, **place}
    process = _start("rows")
    try:
        with suppress(BrokenPipeError), cast(BinaryIO, process.stdin) as requests:
            requests.write(json.dumps(request).encode())
        number = 0
        while frame := read_frame(cast(BinaryIO, process.stdout).read):
            frame_kind, payload = frame
            if frame_kind == DONE:
                return
            if frame_kind != LINE:
                error, _, text = payload.decode(errors="surrogateescape").partition(" ")
                raise _ERRORS.get(error, InputError)(text)
            number, read_bytes, is_too_long, size = _LINE.unpack_from(payload)
            fault, data = payload[_LINE.size : _LINE.size + size], payload[_LINE.size + size :]
            yield Line(number, data, read_bytes, is_too_long, fault.decode(errors="replace"))
        ended = _signal_name(-process.wait())
        raise InputError(
            f"{name} is damaged, after row {number}: its reader crashed ({ended}); fetch it again"
        )
    finally:
        _end(process)


def main() -> None:
    """Serves files, or sends the rows of one file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    out = os.dup(1)
    os.dup2(2, 1)  # keeps a package's own output from mixing with the frames
    if sys.argv[1] in PARSERS:
        _serve_files(out, sys.argv[1])
    else:
        with suppress(BrokenPipeError), os.fdopen(out, "wb") as file:
            _send_rows(json.loads(sys.stdin.buffer.read()), file)


def _serve_files(out: int, parser: str) -> None:
    for package in (each for kind in KINDS.values() if kind.parser == parser for each in kind.packages):
        with suppress(ImportError):
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
                fault = line.fault.encode(errors="replace")
                numbers = _LINE.pack(line.number, line.read_bytes, line.is_too_long, len(fault))
                out.writelines(write_frame(LINE, numbers + fault + line.data))
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
