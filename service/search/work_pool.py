"""Three worker pools: plain searches; searches whose hits are read again; batches, and work that costs many times as much.

Each has permits, threads and batches of its own, so what fills one is not in the way of the other. The threads of the others yield
the CPU to those of the plain one, as far as the system's scheduler knows priorities of threads (Linux).
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
"""Of the threads that re-rank: people wait for them, and more of them for plain searches."""
BULK_NICENESS = 10
"""Of the bulk worker pool's threads: beside a plain search they get about a tenth of a core that both want (sched(7))."""


@dataclass(frozen=True, slots=True)
class WorkPool:
    """What work of one kind runs in.

    Attributes:
        admission: permits; a request takes one in the plain worker pool, and as many as its cost (`glow_service.search.costs`) in the others.
        pool: threads.
        batcher: queries of the worker pool that are encoded together.
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
        """Makes a work_pool.

        Args:
            metrics: told about batches and the queue.
            permits: in all, >= 1.
            threads: searches that run side by side, >= 1.
            encode_threads: threads that one search may use, >= 1.
            batch_tokens: most tokens of a batch, padding counted.
            batch_wait_us: how long a batch waits for requests that are on their way, in microseconds.
            niceness: 0 to 19; how far the threads stand back for others.
        """
        admission = Admission(permits)
        pool = SearchPool(threads, encode_threads, niceness)
        return cls(
            admission, pool, Batcher(pool, metrics, batch_tokens, batch_wait_us, lambda: admission.taken)
        )
