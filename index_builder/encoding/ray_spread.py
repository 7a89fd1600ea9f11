"""Rows imported into a server by Ray's workers: each does a component's task over ranges of rows, and sends them itself.

So the build's own process is no bottle-neck, and the network's load is that of many machines. Ranges are tried again
once; the note of how far the import is stays the build's (`glow.index.milvus`), so a killed build goes on as ever.
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
"""Rows of one task; the progress is told, and an import that was killed goes on, in such steps."""
TRIES = 2
WAITING = 2
"""Ranges that wait for each that is imported."""


class RayImport:
    """Puts rows into a collection as tasks of Ray; an `ImportRows` of `glow.index`.

    Args:
        job: what imports a range of rows; it is pickled, and reads what it imports from a disk that the workers share.
        workers: tasks at the same time, >= 1.
        address: of a cluster; None: Ray is started here.
    """

    def __init__(self, job: RangeTask, workers: int, address: str | None = None) -> None:
        self._job = job
        self._workers = workers
        self._address = address

    def __call__(self, collection: str, start: int, stop: int) -> Iterator[int]:
        """As `ImportRows` says.

        Raises:
            StoreError: if a range fails twice, for example because the server does not answer.
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
    """One task."""
    job(collection, start, stop)
