"""Ray, on this machine or on a cluster with a shared disk: encodes shards, and imports rows into a vector server.

A task is one shard or one range of rows. A process keeps its encoder open for the next tasks. If it dies, only its
task fails. With an import by Ray's workers, the build's own process is not a bottleneck, and many machines share the
network load. The build records the progress (`glow.index.milvus`), so a killed build can resume.
"""

import importlib
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from glow.errors import BuildError, DeviceError, StoreError
from glow.index import RangeTask
from glow_index_builder.encoding.shards import Outcome, Run, Shard, ShardEncoder, ShardJob, encode_shard

MAX_DEATHS = 3
"""After so many consecutive deaths without a response, the build fails."""
QUEUED = 2
"""Queued tasks per running task: few, but enough that no worker is idle."""
DIED = "the process that encoded it died"
LOOK_S = 1.0
STRAGGLER_S, STRAGGLER_TIMES = 30.0, 5.0
"""The last shards start again on another worker after so many seconds and so many times a shard's usual time."""


class _Tasks:
    """The running tasks, and the durations of finished ones."""

    def __init__(self) -> None:
        # reference -> its shard. A shard may have two tasks, which write equal files.
        self.running: dict[Any, Shard] = {}
        self._begun: dict[Any, float] = {}
        self._took: list[float] = []

    def begin(self, reference: Any, shard: Shard) -> None:
        """Notes a task."""
        self.running[reference] = shard
        self._begun[reference] = time.monotonic()

    def end(self, reference: Any) -> Shard:
        """Forgets a task; returns its shard."""
        self._took.append(time.monotonic() - self._begun.pop(reference))
        return self.running.pop(reference)

    def of(self, shard: Shard) -> list[Any]:
        """The running tasks of a shard."""
        return [reference for reference, each in self.running.items() if each == shard]

    def late(self) -> list[Shard]:
        """Shards with a single task that has run far longer than the others did."""
        if not self._took:
            return []
        limit = max(STRAGGLER_S, STRAGGLER_TIMES * statistics.median(self._took))
        now = time.monotonic()
        late = [self.running[each] for each, begun in self._begun.items() if now - begun > limit]
        return [shard for shard in late if len(self.of(shard)) == 1]


@contextmanager
def in_ray(
    job: ShardJob, workers: int, address: str | None = None, encoder: type[ShardEncoder] = ShardEncoder
) -> Iterator[Run]:
    """Encodes as tasks of Ray, so many at the same time.

    A task requests `job.threads` CPUs, and a GPU if the tower runs on one. Without an address, Ray starts
    here, unless this process has done so.
    """
    ray = importlib.import_module("ray")
    is_ours = not ray.is_initialized()
    if is_ours:
        start_ray(workers * job.threads, address)
    try:
        available = ray.cluster_resources()
        if job.device == "cuda" and not available.get("GPU"):
            raise DeviceError("device 'cuda' was asked for, and Ray has no GPU; use --device cpu")
        options = {
            "num_cpus": min(job.threads, int(available.get("CPU", 1))),
            "num_gpus": 1 if job.device == "cuda" else 0,
            "max_retries": 0,  # the build decides about retries
        }
        task, reference = ray.remote(**options)(encode_shard), ray.put(job)
        yield partial(_run, ray, lambda shard: task.remote(encoder, reference, shard), workers)
    finally:
        if is_ours:
            ray.shutdown()


def _run(
    ray: Any, start: Callable[[Shard], Any], workers: int, shards: Sequence[Shard], careful: bool
) -> Iterator[Outcome]:
    """As `Run`; a process has one shard at a time anyway. Slow last shards also start on another worker."""
    waiting, tasks, deaths = deque(shards), _Tasks(), 0
    limit = workers if careful else QUEUED * workers
    while waiting or tasks.running:
        while waiting and len(tasks.running) < limit:
            shard = waiting.popleft()
            tasks.begin(start(shard), shard)
        ready, _ = ray.wait(list(tasks.running), num_returns=1, timeout=LOOK_S)
        for reference in ready:
            outcome = _outcome(ray, reference, tasks.end(reference))
            deaths = deaths + 1 if outcome.fault == DIED and not careful else 0
            if deaths >= MAX_DEATHS * workers:
                raise BuildError(
                    "Ray's workers die as soon as they start; see its logs, and give them more memory"
                )
            copies = tasks.of(outcome.shard)
            if outcome.fault == DIED and copies:
                continue  # its copy continues
            for copy in copies:
                tasks.end(copy)
                ray.cancel(copy, force=True)
            yield outcome
        if not waiting:
            for shard in tasks.late():
                tasks.begin(start(shard), shard)


def _outcome(ray: Any, reference: Any, shard: Shard) -> Outcome:
    errors = ray.exceptions
    try:
        outcome: Outcome = ray.get(reference)
    except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError):
        return Outcome(shard, fault=DIED)
    except errors.RayTaskError as error:
        raise error.cause from error
    return outcome


def start_ray(cpus: int, address: str | None = None) -> None:
    """Starts Ray here, or joins the cluster at an address; Ray's processes get this one's import path."""
    ray = importlib.import_module("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {"env_vars": {"PYTHONPATH": paths}}
    common: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "runtime_env": environment}
    if address:
        ray.init(address=address, **common)
    else:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, configure_logging=False, **common)


RANGE_ROWS = 32_768
"""Rows per task; progress is reported, and a killed import resumes, in such steps."""
TRIES = 2
WAITING = 2
"""Queued ranges per running one."""


@dataclass(frozen=True, slots=True)
class RayImport:
    """Imports rows into a collection as Ray tasks; an `ImportRows` of `glow.index`."""

    _job: RangeTask
    _workers: int  # tasks at the same time, >= 1
    _address: str | None = None  # address of a cluster; None: starts Ray here

    def __call__(self, collection: str, start: int, stop: int) -> Iterator[int]:
        """As `ImportRows` says."""
        ray = importlib.import_module("ray")
        is_ours = not ray.is_initialized()
        if is_ours:
            start_ray(self._workers, self._address)
        try:
            yield from self._run(ray, collection, start, stop)
        finally:
            if is_ours:
                ray.shutdown()

    def _run(self, ray: Any, collection: str, start: int, stop: int) -> Iterator[int]:
        job = ray.put(self._job)
        task = ray.remote(num_cpus=1, max_retries=0)(_import)
        waiting = deque((first, min(first + RANGE_ROWS, stop), 1) for first in range(start, stop, RANGE_ROWS))
        running: dict[Any, tuple[int, int, int]] = {}
        done: dict[int, int] = {}
        while waiting or running:
            while waiting and len(running) < WAITING * self._workers:
                piece = waiting.popleft()
                running[task.remote(job, collection, *piece[:2])] = piece
            (reference,), _ = ray.wait(list(running), num_returns=1)
            first, last, tries = running.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                if tries >= TRIES:
                    raise StoreError(
                        f"rows {first} to {last} could not be imported by Ray's workers: {_reason(error)}; run the build again"
                    ) from error
                waiting.appendleft((first, last, tries + 1))
                continue
            done[first] = last
            before = start
            while start in done:
                start = done.pop(start)
            if start > before:
                yield start


def _reason(error: Exception) -> str:
    cause = getattr(error, "cause", None) or error
    return str(cause).strip().splitlines()[-1][:300] if str(cause).strip() else type(cause).__name__


def _import(job: RangeTask, collection: str, start: int, stop: int) -> None:
    """Runs one task."""
    job(collection, start, stop)
