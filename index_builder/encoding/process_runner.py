"""Encodes shards in local processes: if a process dies, its shards fail and a new process replaces it.

Processes are spawned, not forked: towers and their threads do not survive a fork.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Self

from glow.errors import BuildError
from glow_index_builder.encoding.encode import ShardEncoder, ShardJob
from glow_index_builder.encoding.runner import Outcome, attempt
from glow_index_builder.encoding.shards import Shard

__all__ = ["ProcessRunner"]

MAX_STILLBORN = 3
"""After so many consecutive processes that die before they are ready, the build fails."""
JOIN_S = 10.0


class ProcessRunner:
    """Encodes in worker processes.

    Args:
        job: the job; each process encodes `job.threads` shards at the same time.
        workers: number of processes, >= 1.
        encoder: the encoder class, which the processes import by its name.
    """

    def __init__(self, job: ShardJob, workers: int, encoder: type[ShardEncoder] = ShardEncoder) -> None:
        self._job = job
        self._encoder = encoder
        self._count = workers
        self._workers: list[_Worker] = []
        self._stillborn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def run(self, shards: Sequence[Shard], *, careful: bool = False) -> Iterator[Outcome]:
        """As `Runner.run`; starts processes when there is work, at most one per shard."""
        waiting = deque(shards)
        while len(self._workers) < min(self._count, len(shards)):
            self._workers.append(_Worker(self._job, self._encoder))
        while waiting or any(worker.shards for worker in self._workers):
            for worker in self._workers:
                worker.fill(waiting, 1 if careful else self._job.threads)
            ready = wait([worker.connection for worker in self._workers])
            for at, worker in enumerate(self._workers):
                if worker.connection in ready:
                    yield from self._heard(at, worker)

    def _heard(self, at: int, worker: "_Worker") -> Iterator[Outcome]:
        """Handles a worker's message or its death."""
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            fault = worker.cause_of_death()
            self._stillborn = 0 if worker.is_ready else self._stillborn + 1
            if self._stillborn >= MAX_STILLBORN:
                raise BuildError(
                    f"worker processes cannot start: {fault}; build with --workers 1, or give them more memory"
                ) from None
            self._workers[at] = _Worker(self._job, self._encoder)
            yield from (Outcome(shard, fault=fault) for shard in worker.shards)
            return
        if isinstance(message, Exception):
            raise message
        worker.is_ready = True
        if isinstance(message, Outcome):
            worker.shards.remove(message.shard)
            yield message


class _Worker:
    """One process, and the shards that it has."""

    def __init__(self, job: ShardJob, encoder: type[ShardEncoder]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_work, args=(theirs, job, encoder), daemon=True)
        self._process.start()
        theirs.close()  # so that the worker's death causes an end of file here
        self.shards: list[Shard] = []
        self.is_ready = False

    def fill(self, waiting: deque[Shard], limit: int) -> None:
        """Sends it shards up to a limit."""
        while waiting and len(self.shards) < limit:
            shard = waiting.popleft()
            self.shards.append(shard)
            try:
                self.connection.send(shard)
            except OSError:
                return  # it died; the end of file will report that

    def end(self) -> None:
        """Kills the process."""
        self.connection.close()
        self._process.kill()
        self._process.join(JOIN_S)

    def cause_of_death(self) -> str:
        """How the process ended after it closed its pipe."""
        self._process.join(JOIN_S)
        code = self._process.exitcode
        self.end()
        if code is not None and code < 0:
            return f"the process that encoded it was ended by {signal.Signals(-code).name}"
        return f"the process that encoded it ended with exit code {code}"


def _work(connection: Connection, job: ShardJob, encoder_type: type[ShardEncoder]) -> None:
    """The worker's main loop: opens the encoder, then encodes shards until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends its workers
    say = _Sender(connection)
    try:
        encoder = encoder_type.open(job)
    except Exception as error:
        say(error)
        return
    say(None)

    def encode(shard: Shard) -> None:
        try:
            say(attempt(encoder, shard))
        except Exception as error:
            say(error)

    pool = ThreadPoolExecutor(job.threads, thread_name_prefix="encode")
    try:
        while True:
            pool.submit(encode, connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # at once: a half-done shard must not be written during the next build


class _Sender:
    """Sends from many threads; ignores a closed pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def __call__(self, message: Any) -> None:
        with self._lock:
            try:
                self._connection.send(message)
            except OSError:
                return
