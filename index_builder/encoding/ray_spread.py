"""Imports rows into a vector server by Ray's workers: each sends its ranges of rows itself.

So the build's own process is not a bottleneck, and many machines share the network load. A failed range is tried
once more. The build records the progress (`glow.index.milvus`), so a killed build can resume.
"""

import importlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from glow.errors import StoreError
from glow.index import RangeTask
from glow_index_builder.encoding.ray_runner import start_ray

__all__ = ["RayImport"]

RANGE_ROWS = 32_768
"""Rows per task; progress is reported, and a killed import resumes, in such steps."""
TRIES = 2
WAITING = 2
"""Queued ranges per running one."""


class RayImport:
    """Imports rows into a collection as Ray tasks; an `ImportRows` of `glow.index`.

    Args:
        job: imports a range of rows. It is pickled, and reads the rows from a shared disk.
        workers: tasks at the same time, >= 1.
        address: address of a cluster; None: starts Ray here.
    """

    def __init__(self, job: RangeTask, workers: int, address: str | None = None) -> None:
        self._job = job
        self._workers = workers
        self._address = address

    def __call__(self, collection: str, start: int, stop: int) -> Iterator[int]:
        """As `ImportRows` says.

        Raises:
            StoreError: if a range fails twice, for example because the server does not respond.
        """
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
