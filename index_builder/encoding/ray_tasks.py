"""Ray, on this machine or on a cluster with a shared disk: encodes blocks, and imports rows into a vector server.

A task is one block or one range of rows. A process keeps its encoder open for the next tasks. If it dies, only its
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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from glow.errors import BuildError, DeviceError, StoreError
from glow.index import RangeTask
from glow_index_builder.encoding.blocks import Block, BlockEncoder, encode_block
from glow_index_builder.encoding.schedule import DIED, Run

MAX_DEATHS = 3
"""After so many consecutive deaths without a response, the build fails."""
QUEUED = 2
"""Queued tasks per running task: few, but enough that no worker is idle."""
LOOK_S = 1.0
STRAGGLER_S, STRAGGLER_TIMES = 30.0, 5.0
"""The last blocks start again on another worker after so many seconds and so many times a block's usual time."""


@contextmanager
def in_ray(job: BlockEncoder, workers: int, address: str | None = None) -> Iterator[Run]:
    """Encodes as tasks of Ray, so many at the same time.

    A task requests `job.threads` CPUs, and a GPU if the tower runs on one. Without an address, Ray starts
    here, unless this process has done so.
    """
    with _joined(workers * job.threads, address) as ray:
        available = ray.cluster_resources()
        if job.device == "cuda" and not available.get("GPU"):
            raise DeviceError("device 'cuda' was asked for, and Ray has no GPU; use --device cpu")
        options = {
            "num_cpus": min(job.threads, int(available.get("CPU", 1))),
            "num_gpus": 1 if job.device == "cuda" else 0,
            "max_retries": 0,  # the build decides about retries
        }
        task, reference = ray.remote(**options)(encode_block), ray.put(job)
        yield partial(_run, ray, lambda block: task.remote(reference, block), workers)


def _run(
    ray: Any, start: Callable[[Block], Any], workers: int, blocks: Sequence[Block], careful: bool
) -> Iterator[Block]:
    """As `Run`; a process has one block at a time anyway. Slow last blocks also start on another worker."""
    waiting, deaths = deque(blocks), 0
    # task -> its block, and when it began. A block may have two tasks, which write equal files.
    running: dict[Any, tuple[Block, float]] = {}
    took: list[float] = []
    limit = workers if careful else QUEUED * workers
    while waiting or running:
        while waiting and len(running) < limit:
            block = waiting.popleft()
            running[start(block)] = block, time.monotonic()
        ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_S)
        for reference in ready:
            block, begun = running.pop(reference)
            took.append(time.monotonic() - begun)
            encoded = _result(ray, reference, block)
            deaths = deaths + 1 if encoded.fault == DIED and not careful else 0
            if deaths >= MAX_DEATHS * workers:
                raise BuildError(
                    "Ray's workers die as soon as they start; see its logs, and give them more memory"
                )
            copies = [task for task, (other, _) in running.items() if other == block]
            if encoded.fault == DIED and copies:
                continue  # its copy continues
            for copy in copies:
                del running[copy]
                ray.cancel(copy, force=True)
            yield encoded
        if not waiting and took:
            late = time.monotonic() - max(STRAGGLER_S, STRAGGLER_TIMES * statistics.median(took))
            for block, begun in list(running.values()):
                if begun < late and sum(other == block for other, _ in running.values()) == 1:
                    running[start(block)] = block, time.monotonic()


def _result(ray: Any, reference: Any, block: Block) -> Block:
    errors = ray.exceptions
    try:
        encoded: Block = ray.get(reference)
    except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError):
        return replace(block, fault=DIED)
    except errors.RayTaskError as error:
        raise error.cause from error
    return encoded


@contextmanager
def _joined(cpus: int, address: str | None) -> Iterator[Any]:
    """The package Ray, started if this process has not done so, and then stopped again."""
    ray = importlib.import_module("ray")
    is_ours = not ray.is_initialized()
    if is_ours:
        start_ray(cpus, address)
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


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
        with _joined(self._workers, self._address) as ray:
            yield from self._run(ray, collection, start, stop)

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
