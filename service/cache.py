"""The cache of responses and query vectors in the process; if there is a Redis, processes share responses.

A key is the hash of everything that an entry depends on. A change gives a new key, so invalidation is not needed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from cachetools import TTLCache
from numpy.typing import NDArray

from glow import __version__
from glow.artifact import Manifest
from glow.index import Index
from glow_service.errors import DeadlineError
from glow_service.search.plan import SearchPlan
from glow_service.telemetry.metrics import Kind, Metrics, tier_events

if TYPE_CHECKING:
    from glow_service.redis import RedisCache

# Part of every key; increase it if the format of entries or the input of keys changes.
_KEY_VERSION = 7
# 160 bits: nobody can find two texts with the same hash.
_DIGEST_BYTES = 20


class Keys:
    """Makes the keys of one index version."""

    def __init__(self, model: str, terms: str, version: str) -> None:
        # Vectors stay valid across index versions: they depend only on the model and the term statistics.
        self._vector = blake2b(repr(("vector", model, terms)).encode(), digest_size=_DIGEST_BYTES)
        # Another release may give a different response.
        page = ("response", __version__, model, terms, version)
        self._page = blake2b(repr(page).encode(), digest_size=_DIGEST_BYTES)

    @classmethod
    def of(cls, index: Index) -> "Keys":
        """The keys of an open index, with its manifest's hash: versions of different indexes may have the same name."""
        hashes = index.manifest.hashes
        return cls(hashes["model"], hashes["terms"], f"{index.version}@{index.manifest.hash}")

    def vector(self, text: str) -> bytes:
        """The key of a query's vector."""
        state = self._vector.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return state.digest()

    def page(self, plan: SearchPlan) -> bytes:
        """The key of a response, in printable ASCII."""
        state = self._page.copy()
        # Frozen dataclasses of plain values have the same text if and only if they are the same, 1 and True included.
        state.update(repr(plan).encode())
        return b"glow:%d:page:%s" % (_KEY_VERSION, state.hexdigest().encode())


# Entries in the process.

ENTRY_OVERHEAD_BYTES = 400
"""Approximate memory of an entry besides its value: dictionary slots, key, links, expiry."""
MOST_VALUE_BYTES = 1 << 20
# Responses differ a thousandfold in size, so a limit of their number does not limit memory.
_LEAST_BYTES = 64 << 20
_BYTES_PER_ENTRY = 4 << 10
Value = TypeVar("Value")


class _Local(Generic[Value]):
    """Entries of one kind, limited in number, bytes and age; only one event loop may use it."""

    def __init__(
        self, kind: Kind, entries: int, ttl_s: float, metrics: Metrics, size_of: Callable[[Value], int]
    ) -> None:
        self._count = tier_events(metrics, "local", kind)
        self._size_of = size_of
        size = max(_LEAST_BYTES, entries * _BYTES_PER_ENTRY)
        self._entries: TTLCache[bytes, Value] = TTLCache(
            size,
            ttl_s,
            # An entry counts as at least its share, which limits the number of entries.
            getsizeof=lambda value: max(size_of(value) + ENTRY_OVERHEAD_BYTES, size / entries),
        )

    def get(self, key: bytes) -> Value | None:
        """The value of a key, or None if it is missing or expired."""
        value: Value | None = self._entries.get(key)
        self._count("miss" if value is None else "hit")
        return value

    def put(self, key: bytes, value: Value) -> None:
        """Stores a value, unless it is too large; evicts others if needed."""
        if self._size_of(value) > MOST_VALUE_BYTES:
            self._count("skipped")
            return
        before = len(self._entries) + (key not in self._entries)
        self._entries[key] = value
        self._count("store")
        for _ in range(before - len(self._entries)):
            self._count("evict")


class SingleFlight:
    """Of concurrent callers for one key, the first makes the value and the others receive it.

    If it is canceled or misses its own deadline, another one makes the value; any other error reaches all.
    """

    def __init__(self) -> None:
        self.flights: dict[bytes, asyncio.Future[bytes | None]] = {}

    async def run(self, key: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Makes a value, or waits for another caller's; `make` must not request the same key."""
        while (flight := self.flights.get(key)) is not None:
            value = await asyncio.shield(flight)  # a caller that leaves does not affect the others
            if value is not None:
                return value
        flight = self.flights[key] = asyncio.get_running_loop().create_future()
        try:
            value = await make()
            flight.set_result(value)
            return value
        except (DeadlineError, TimeoutError):
            raise
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # perhaps nobody else waits for it
            raise
        finally:
            del self.flights[key]
            if not flight.done():
                flight.set_result(None)


class Cache:
    """Responses and query vectors by key; only one event loop may use it. It is off without entries and Redis."""

    def __init__(
        self,
        metrics: Metrics,
        entries: int,  # most responses, and most query vectors, in the process; 0 for none
        ttl_s: int = 300,  # lifetime of an entry, in seconds
        redis_url: str = "",  # address of the Redis that workers share; "" for none
        redis_timeout_ms: int = 20,  # most time that a search spends on Redis, in milliseconds
    ) -> None:
        self._responses: _Local[bytes] | None = None
        self._vectors: _Local[NDArray[np.float32]] | None = None
        if entries:
            self._responses = _Local("response", entries, ttl_s, metrics, len)
            self._vectors = _Local("vector", entries, ttl_s, metrics, lambda vector: vector.nbytes)
        self._redis: RedisCache | None = None
        if redis_url:
            from glow_service import redis

            self._redis = redis.RedisCache(redis_url, redis_timeout_ms / 1_000, ttl_s, metrics)
        self._flights = SingleFlight()
        self._keys: tuple[Manifest, Keys] | None = None
        self.enabled = bool(entries or self._redis)

    def keys(self, index: Index) -> Keys:
        """The keys of an index version; making them takes a millisecond, so they are kept until it changes."""
        if self._keys is None or self._keys[0] is not index.manifest:
            # Keep the manifest, not the index, which must be free to close.
            self._keys = (index.manifest, Keys.of(index))
        return self._keys[1]

    def vector(self, index: Index, text: str) -> NDArray[np.float32] | None:
        """The vector of a preprocessed query, or None."""
        return None if self._vectors is None else self._vectors.get(self.keys(index).vector(text))

    def put_vector(self, index: Index, text: str, vector: NDArray[np.float32]) -> None:
        """Stores the vector of a preprocessed query."""
        if self._vectors is not None:
            # A copy: it may be a view of a whole batch.
            self._vectors.put(self.keys(index).vector(text), vector.copy())

    async def response(self, key: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The response of a key: of this process, of Redis, or made; concurrent callers share one `make`."""
        if not self.enabled:
            return await make()
        value = None if self._responses is None else self._responses.get(key)
        return await self._flights.run(key, lambda: self._find_or_make(key, make)) if value is None else value

    async def close(self) -> None:
        """Closes the connections to Redis; values that wait to be written are dropped."""
        if self._redis is not None:
            await self._redis.close()

    async def _find_or_make(self, key: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        value = None if self._redis is None else await self._redis.get(key)
        if value is None:
            value = await make()
            if self._redis is not None:
                self._redis.put(key, value)
        if self._responses is not None:
            self._responses.put(key, value)
        return value
