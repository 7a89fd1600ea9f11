"""State that the worker processes of a service share, through files in a folder, and whether all are ready.

It is the folder of their metrics (`service/telemetry/metrics.py`); a service of one process has none.
"""

import asyncio
import ctypes
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from glow.index import Index
from glow_service.errors import NotReadyError
from glow_service.live.resources import Resources
from glow_service.telemetry.metrics import FOLDER_VARIABLE

_PR_SET_PDEATHSIG = 1
_MARKER, _FAILED, _COMPLETE, _ASKED, _STATUS = "loaded", "failed", "complete", "asked", "live-{pid}.json"


def end_with_parent() -> None:
    """Stops this process if its supervisor is killed, so that the port becomes free."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _shared_folder() -> Path | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder else None


def note_loaded() -> None:
    """Records, for workers that start later, that the index was loaded."""
    if folder := _shared_folder():
        (folder / _MARKER).touch()


def was_loaded() -> bool:
    """Whether a worker of this service has loaded the index."""
    folder = _shared_folder()
    return folder is not None and (folder / _MARKER).exists()


def is_first_to_fail() -> bool:
    """Whether this is the first worker that fails to load the index; the others need not log the same error."""
    try:
        if folder := _shared_folder():
            (folder / _FAILED).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The status of one worker."""

    pid: int
    started: int
    version: str  # its live version
    refused: str  # error code of its refusal of the version that CURRENT names; "" for none
    request: str  # the last requested check that it has done (`WorkerGroup.ask`)


class WorkerGroup:
    """The workers of one service: each may request a check of CURRENT from all, and read their status."""

    def __init__(self) -> None:
        self._folder = _shared_folder()
        self._noted: WorkerStatus | None = None
        self._is_complete = self._folder is None
        self._started = _started(os.getpid())

    def ask(self) -> str:
        """Requests a check of CURRENT from every worker, including this one; returns the request's id."""
        request = secrets.token_hex(8)
        self._write(_ASKED, request.encode())
        return request

    def asked(self) -> str:
        """Id of the last request; "" for none."""
        with suppress(OSError, ValueError):
            return (self._folder / _ASKED).read_text(encoding="ascii") if self._folder else ""
        return ""

    def note(self, version: str, refused: str, request: str) -> None:
        """Writes this worker's status, if it has changed."""
        status = WorkerStatus(os.getpid(), self._started, version, refused, request)
        if status != self._noted:
            self._noted = status
            self._write(_STATUS.format(pid=status.pid), orjson.dumps(asdict(status)))

    def statuses(self) -> list[WorkerStatus]:
        """The status of every running worker; empty for a service of one process."""
        statuses = []
        for path in self._folder.glob(_STATUS.format(pid="*")) if self._folder else ():
            with suppress(OSError, ValueError, TypeError):
                status = WorkerStatus(**orjson.loads(path.read_bytes()))
                if status.started == _started(status.pid):
                    statuses.append(status)
        return statuses

    def have_loaded(self, processes: int) -> bool:
        """Whether so many workers have had a live index at the same time; once true, it stays true."""
        if not self._is_complete and self._folder is not None:
            marker = self._folder / _COMPLETE
            if not marker.exists() and len(self.statuses()) >= processes:
                self._write(_COMPLETE, b"")
            self._is_complete = marker.exists()
        return self._is_complete

    @contextmanager
    def turn(self, most: int) -> Iterator[None]:
        """Runs a block in at most `most` workers at a time; the kernel releases the turn of a worker that dies."""
        if self._folder is None:
            yield
            return
        with (self._folder / f"turn-{os.getpid() % most}").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, name: str, content: bytes) -> None:
        if self._folder is None:
            return
        temporary = self._folder / f".{name}-{os.getpid()}-{secrets.token_hex(4)}"
        with suppress(OSError):
            temporary.write_bytes(content)
            temporary.replace(self._folder / name)


def _started(pid: int) -> int:
    """Start time of a process, in ticks since the system's start; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(fields[19])


# The readiness check, whose result concurrent probes share.

FRESH_S = 0.5
"""How long a result is reused, in seconds: probes need no key, so many of them must not cause much work."""
LONGEST_S = 5.0


class Readiness:
    """Runs one check at a time in a separate thread: a queue of searches makes a service slow, not unready."""

    def __init__(self, resources: Resources, group: WorkerGroup, processes: int) -> None:
        self._resources, self._group, self._processes = resources, group, processes
        self._executor = ThreadPoolExecutor(1, "readiness")
        # The reason for not being ready, or None. An index or an error, whose traceback references one, must not be kept.
        self._check: asyncio.Future[str | None] | None = None
        self._asked = 0.0

    async def check(self) -> Index:
        """The live index, if the service is ready."""
        self._resources.require_open()
        # These checks are cheap and never reused: once one worker reports that all are ready, no other may report the
        # opposite.
        self._resources.live()
        if self._processes > 1 and not self._group.have_loaded(self._processes):
            raise NotReadyError("not all workers have loaded the index yet; try again in a moment")
        now = time.monotonic()
        if self._check is None or (self._check.done() and now - self._asked > FRESH_S):
            self._asked = now
            self._check = asyncio.get_running_loop().run_in_executor(self._executor, self._find_fault)
        try:
            fault = await asyncio.wait_for(asyncio.shield(self._check), LONGEST_S)
        except TimeoutError as error:
            raise NotReadyError(f"the resources do not respond within {LONGEST_S:g} s") from error
        if fault is not None:
            raise NotReadyError(fault)
        return self._resources.live()

    def _find_fault(self) -> str | None:
        try:
            self._resources.check()
        except NotReadyError as error:
            return str(error)
        return None

    def close(self) -> None:
        """Closes the thread without waiting for a running check."""
        self._executor.shutdown(wait=False, cancel_futures=True)
