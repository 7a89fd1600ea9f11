"""Vectors into a server by Ray's workers: each reads ranges of rows from the shared disk and sends them itself.

So the build's own process is no bottle-neck, and the network's load is that of many machines. Ranges are tried again
once; the note of how far the import is stays the build's (`glow.index.milvus`), so a killed build goes on as ever.
"""

import importlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import StoreError
from glow.index.columns import Columns
from glow.index.milvus import IMPORT_ROWS, FilterFields, connect, insert_rows
from glow.index.passages import PassageMap
from glow.index.vectors import VectorRows
from glow_index_builder.encoding.ray_runner import start_ray

__all__ = ["ImportJob", "RayImport"]

TRIES = 2
WAITING = 2
"""Ranges that wait for each that is imported."""


@dataclass(frozen=True, slots=True)
class ImportJob:
    """What a worker needs to import any range.

    Attributes:
        address: of the server; its token is in the environment of Ray's processes, as it is in ours.
        vectors: of all rows, read from a shared disk.
        columns: folder whose `columns/` describe the documents.
        documents: of them.
        passages: folder of the map of passages; None: rows are documents.
    """

    address: str
    vectors: VectorRows
    columns: Path
    documents: int
    passages: Path | None


class RayImport:
    """Puts rows into a collection as tasks of Ray; one `Insert` of `glow.search`.

    Args:
        job: what there is to import.
        workers: tasks at the same time, >= 1.
        address: of a cluster; None: Ray is started here.
    """

    def __init__(self, job: ImportJob, workers: int, address: str | None = None) -> None:
        self._job = job
        self._workers = workers
        self._address = address

    def __call__(self, collection: str, start: int, stop: int) -> Iterator[int]:
        """As `Insert` says.

        Raises:
            StoreError: if the server does not answer, or a range fails twice.
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
        waiting = deque(
            (first, min(first + IMPORT_ROWS, stop), 1) for first in range(start, stop, IMPORT_ROWS)
        )
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


def _import(job: ImportJob, collection: str, start: int, stop: int) -> None:
    """One task."""
    passages = None if job.passages is None else PassageMap.open(job.passages)
    fields = FilterFields(Columns.open(job.columns, job.documents))

    def documents(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows if passages is None else passages.documents[rows].astype(np.int64)

    insert_rows(connect(job.address), collection, job.vectors, start, stop, fields, documents)
