"""The build's side of the parser processes: a page becomes one line, a file of rows its lines."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from glow.errors import DependencyError, GlowError, InputError, RecordError
from glow_index_builder.input.child import (
    DONE,
    ENDED,
    FAULT,
    LINE,
    PAGE_CPU_S,
    read_exactly,
    read_frame,
    unpack_line,
)
from glow_index_builder.input.lines import Line
from glow_index_builder.objects import RemoteFile

WALL_S = 60.0
"""A parser that neither responds nor uses the CPU for so long is ended, too."""
_ERRORS: dict[str, type[GlowError]] = {"InputError": InputError, "DependencyError": DependencyError}
_FEW = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment of the parsers: memory that counts against the system's limit, and few threads."""


def _start(kind: str, command: Sequence[str] = ("-P", "-m", "glow_index_builder.input.child")) -> subprocess.Popen[bytes]:  # fmt: skip
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


class PageParser:
    """Parses pages in a process that lives while pages arrive, and is replaced if it ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._count = 0

    def line(
        self,
        name: str,
        data: bytes,  # its bytes
    ) -> bytes:
        """Converts a page to a document, as `page_line` does."""
        with self._lock:
            frame = self._ask(name, data) or self._ask(name, data)  # the first may meet a process that ends
        if frame is None:
            raise RecordError(f"{name} is not a page: its parser ended unexpectedly")
        kind, payload = frame
        if kind == LINE:
            return payload
        if kind == FAULT:
            raise RecordError(payload.decode(errors="replace"))
        raise RecordError(f"{name} is not a page: {_ended_by(payload)}")

    def start(self) -> None:
        """Starts the process before the first page, so that it loads while the model does."""
        with self._lock:
            self._process = self._process or _start("pages")

    def close(self) -> None:
        """Ends the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _ask(self, name: str, data: bytes) -> tuple[bytes, bytes] | None:
        if self._process is None:
            self._process = _start("pages")
        process, encoded = self._process, name.encode(errors="surrogatepass")
        self._count += 1
        number = (self._count % 2**32).to_bytes(4)
        answers, frame = cast(BinaryIO, process.stdout).fileno(), None
        try:
            requests = cast(BinaryIO, process.stdin)
            requests.write(number + len(encoded).to_bytes(4) + encoded + len(data).to_bytes(4) + data)
            requests.flush()
            while select.select([answers], [], [], WALL_S)[0]:
                frame = read_frame(partial(read_exactly, answers))  # unbuffered for `select`
                if frame is None or frame[0] == ENDED:
                    break
                if frame[1].startswith(number):
                    return frame[0], frame[1][len(number) :]
                frame = None  # from an earlier page, whose parser was ended while it waited
        except BrokenPipeError:
            pass
        if frame is None:
            self.close()
        return frame


def _ended_by(payload: bytes) -> str:
    number = int(payload)
    if number == signal.SIGPROF:
        return f"its parser takes more than {PAGE_CPU_S:g} s"
    return f"its parser crashed ({_signal_name(number)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit status {-number}"


page_parser = PageParser()
"""The parser of this process; it starts with the first page."""
atexit.register(page_parser.close)


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
            line = unpack_line(payload)
            number = line.number
            yield line
        ended = _signal_name(-process.wait())
        raise InputError(
            f"{name} is damaged, after row {number}: its reader crashed ({ended}); fetch it again"
        )
    finally:
        _end(process)
