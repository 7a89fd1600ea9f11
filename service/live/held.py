"""The index versions in memory: the live one, and previous ones that requests still use.

CPython frees a version when its last request ends, because only requests reference a previous version. This module then
updates the metric, logs a line, and returns memory to the system. A reference cycle, as of a traceback, may keep a
version longer; the garbage collector then frees it.
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
"""How long a replaced version may stay before a garbage collection, and between two of them, in seconds."""
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    index: "weakref.ref[Index]"
    version: str
    replaced: float = 0.0


class HeldVersions:
    """Counts open versions; only one thread may call `add` and `tidy`.

    Args:
        metrics: receives their number.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._held: list[_Held] = []
        # The callback of a weak reference may run at any point, so it takes no lock and leaves the work to `tidy`.
        self._gone: deque[None] = deque()
        self._collected = 0.0

    def __len__(self) -> int:
        return sum(held.index() is not None for held in self._held)

    def add(self, index: Index) -> None:
        """Records a new live version, which replaces the previous one."""
        now = time.monotonic()
        for held in self._held:
            held.replaced = held.replaced or now
        self._held.append(_Held(weakref.ref(index, lambda _: self._gone.append(None)), index.version))
        self._metrics.versions_open.set(len(self))
        _settle()

    def tidy(self) -> None:
        """Records freed versions and returns their memory; collects garbage if a replaced version stays too long."""
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
    """Collects garbage, and excludes the remaining objects from later collections, which stop every thread.

    A collection of the whole program with an index takes about 40 ms, and requests with many small objects would
    start one often.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _give_back() -> None:
    """Makes the C library return freed memory to the system, which it would otherwise keep."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return
    trim(0)
