"""The cache inside a process: least recently used goes first, and nothing stays beyond its time."""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable

from glow_service.cache.events import TierEvents

__all__ = ["ENTRY_OVERHEAD_BYTES", "LocalCache"]

ENTRY_OVERHEAD_BYTES = 400
"""About what Python keeps for an entry besides its value: dictionary slot, key, tuple, expiry."""


class LocalCache:
    """Entries of one kind; every operation takes the same time, however many there are.

    It belongs to one event loop and has no locks.

    Args:
        max_entries: >= 1.
        max_bytes: of keys, values and what Python needs for them, together.
        ttl_s: seconds that an entry is kept after it was stored; reading it does not keep it longer.
        events: counts.
        clock: seconds that never go back.
        max_value_bytes: a larger value is not kept, so that no huge answer costs many others their place.
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
        """The value stored under a key, or None where there is none or its time is over."""
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
        """Stores a value; what was used longest ago makes room for it."""
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
