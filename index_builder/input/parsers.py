"""The build's side of the parser processes: files become documents, and files of rows lines."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from glow.errors import DependencyError, GlowError, InputError, RecordError
from glow_index_builder.input.child import (
    DONE,
    ENDED,
    FAULT,
    LINE,
    PARSERS,
    cpu_limit,
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


class FileParser:
    """Parses files in a process that lives while files arrive, and is replaced if it ends."""

    def __init__(self, name: str) -> None:
        self._name = name  # one of `PARSERS`
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._count = 0

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
            elif frame[0] == ENDED:
                yield RecordError(_ended_by(frame[1], cpu_limit(self._name, request["size"])))

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
        if self._process is None:
            self._process = _start(self._name)
        data = json.dumps(request).encode()
        self._count += 1
        try:
            requests = cast(BinaryIO, self._process.stdin)
            requests.write(self._number + len(data).to_bytes(4) + data)
            requests.flush()
        except BrokenPipeError:
            self.close()
            return None
        return self._next_frame()

    @property
    def _number(self) -> bytes:
        """Identifies the frames of the current file."""
        return (self._count % 2**32).to_bytes(4)

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


def _ended_by(payload: bytes, cpu_s: float) -> str:
    number = int(payload)
    if number == signal.SIGPROF:
        return f"its parser takes more than {cpu_s:g} s"
    return f"its parser crashed ({_signal_name(number)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit status {-number}"


file_parsers = {name: FileParser(name) for name in PARSERS}
"""The parsers of this process; each starts with its first file."""
for _parser in file_parsers.values():
    atexit.register(_parser.close)


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
