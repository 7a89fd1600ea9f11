"""The LRU cache in a process, whose entries also expire."""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable

from glow_service.telemetry import TierEvents

__all__ = ["ENTRY_OVERHEAD_BYTES", "LocalCache"]

ENTRY_OVERHEAD_BYTES = 400
"""Approximate memory of an entry besides its value: dictionary slot, key, tuple, expiry."""


class LocalCache:
    """Entries of one kind; all operations take constant time.

    It has no locks: only one event loop may use it.

    Args:
        max_entries: most entries, >= 1.
        max_bytes: most bytes of keys, values and overhead in total.
        ttl_s: lifetime of an entry after it was stored, in seconds; reads do not extend it.
        events: counts the events.
        clock: returns monotonic seconds.
        max_value_bytes: largest value; a larger one is not stored, so that it does not evict many others.
    """

    def __init__(
        self,
        max_entries: int,
        max_bytes: int,
        ttl_s: float,
        events: TierEvents,
        clock: Callable[[], float] = time.monotonic,
        max_value_bytes: int = sys.maxsize,
    ) -> None:
        self._entries: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._count = events.count
        self._clock = clock
        self._max_value_bytes = max_value_bytes
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None if it is missing or expired."""
        entry = self._entries.get(key)
        if entry is None:
            self._count("miss")
            return None
        value, expires = entry
        if self._clock() >= expires:
            self._remove(key)
            self._count("evict")
            self._count("miss")
            return None
        self._entries.move_to_end(key)
        self._count("hit")
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Stores a value; evicts the least recently used ones if needed."""
        if key in self._entries:
            self._remove(key)
        size = _size(value)
        if size > self._max_bytes or len(value) > self._max_value_bytes:
            self._count("skipped")
            return
        while len(self._entries) >= self._max_entries or self.size_bytes + size > self._max_bytes:
            self._remove(next(iter(self._entries)))
            self._count("evict")
        self._entries[key] = (value, self._clock() + self._ttl_s)
        self.size_bytes += size
        self._count("store")

    def _remove(self, key: bytes) -> None:
        self.size_bytes -= _size(self._entries.pop(key)[0])


def _size(value: bytes) -> int:
    return len(value) + ENTRY_OVERHEAD_BYTES
