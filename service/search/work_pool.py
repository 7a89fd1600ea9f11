"""Worker pools: `plain` for searches, `rerank` for re-ranked searches, `bulk` for batches and expensive requests.

Each has its own slots, threads and batches, so a full pool does not block the others. On Linux, threads of the plain pool
have the highest priority.
"""

from dataclasses import dataclass
from typing import Literal, Self

from glow_service.search.admission import Admission
from glow_service.search.batcher import Batcher
from glow_service.search.pool import SearchPool
from glow_service.telemetry import Metrics

__all__ = ["BULK_NICENESS", "RERANK_NICENESS", "WorkPool", "WorkPoolName"]

WorkPoolName = Literal["plain", "rerank", "bulk"]

RERANK_NICENESS = 5
"""Niceness of the `rerank` threads, between those of `plain` and `bulk`."""
BULK_NICENESS = 10
"""Niceness of the `bulk` threads: beside a plain search, they get about a tenth of a shared core (sched(7))."""


@dataclass(frozen=True, slots=True)
class WorkPool:
    """Slots, threads and a query batcher for one class of requests.

    Attributes:
        admission: slots; a request takes one in the plain pool, in others as many as its cost.
        pool: the threads.
        batcher: batches the pool's queries for the query encoder.
    """

    admission: Admission
    pool: SearchPool
    batcher: Batcher

    @classmethod
    def open(
        cls,
        metrics: Metrics,
        *,
        permits: int,
        threads: int,
        encode_threads: int,
        batch_tokens: int,
        batch_wait_us: int = 0,
        niceness: int = 0,
    ) -> Self:
        """Makes a worker pool.

        Args:
            metrics: receives figures of batches and the queue.
            permits: number of slots, >= 1.
            threads: number of parallel searches, >= 1.
            encode_threads: threads per search, >= 1.
            batch_tokens: most tokens of a batch, with padding.
            batch_wait_us: how long a batch waits for arriving requests, in microseconds.
            niceness: niceness of the threads, 0 to 19.
        """
        admission = Admission(permits)
        pool = SearchPool(threads, encode_threads, niceness)
        return cls(
            admission, pool, Batcher(pool, metrics, batch_tokens, batch_wait_us, lambda: admission.taken)
        )
