"""Which index versions are in memory: the live one, and those before it that still have a reader.

A version goes with its last reader, by counting references, as everything in CPython does: whoever answers a request
holds its index, and nobody else does. Here is only what follows: the count, a line in the log, and memory that is
given back to the system. Something may still keep a version in a circle (a traceback does); the collector ends that.
"""

import ctypes
import gc
import logging
import time
import weakref
from collections import deque
from dataclasses import dataclass

from glow.index import Index
from glow_service.telemetry import Metrics

__all__ = ["HeldVersions"]

COLLECT_AFTER_S = 5.0
"""How long a replaced version may stay before the collector looks for circles, and how often it does."""
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    index: "weakref.ref[Index]"
    version: str
    replaced: float = 0.0


class HeldVersions:
    """Counts versions that are open; `add` and `tidy` belong to one thread.

    Args:
        metrics: told how many there are.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._held: list[_Held] = []
        # A weak reference's callback may come anywhere, so it takes no lock and leaves the work to `tidy`.
        self._gone: deque[None] = deque()
        self._collected = 0.0

    def __len__(self) -> int:
        return sum(held.index() is not None for held in self._held)

    def add(self, index: Index) -> None:
        """Notes the new live version; the one before it is to go."""
        now = time.monotonic()
        for held in self._held:
            held.replaced = held.replaced or now
        self._held.append(_Held(weakref.ref(index, lambda _: self._gone.append(None)), index.version))
        self._metrics.versions_open.set(len(self))
        _settle()

    def tidy(self) -> None:
        """Notes versions that went, and gives their memory back; searches for circles where one stays for long."""
        if len(self) > 1:
            self._collect()
        if not self._gone:
            return
        self._gone.clear()
        now = time.monotonic()
        for held in [held for held in self._held if held.index() is None]:
            fields = {"index": held.version, "seconds": round(now - held.replaced, 3)}
            _logger.info("released", extra={"fields": fields})
            self._held.remove(held)
        self._metrics.versions_open.set(len(self))
        _give_back()

    def _collect(self) -> None:
        now = time.monotonic()
        since = min(held.replaced or now for held in self._held if held.index() is not None)
        if now - max(since, self._collected) > COLLECT_AFTER_S:
            self._collected = now
            _settle()


def _settle() -> None:
    """Collects what is in circles, and takes what stays out of the garbage collector's walks, which stop every thread.

    A walk over all that an index and the program consist of takes some 40 ms, and a request of many small parts would set one
    off every few moments.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _give_back() -> None:
    """Has the C library return freed memory: it would keep what small pieces were cut from, for the next version."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return
    trim(0)
