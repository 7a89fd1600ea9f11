"""The interface of the cache: looks in this process's memory, then in Redis, then makes the value."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from glow.artifact import Manifest
from glow.index import Index
from glow_service.cache.keys import Keys
from glow_service.cache.local import LocalCache
from glow_service.cache.single_flight import SingleFlight
from glow_service.telemetry import KINDS, Kind, Metrics, RedisBudget, TierEvents

if TYPE_CHECKING:
    from glow_service.redis import RedisCache

__all__ = ["Cache"]

# Responses differ a thousandfold in size, so a limit of their number does not limit memory.
_LEAST_BYTES = 64 << 20
MOST_VALUE_BYTES = 1 << 20
_BYTES_PER_ENTRY = 4 << 10


class Cache:
    """Cached values by kind and key.

    Only one event loop may use it. Without entries and Redis it is disabled.

    Args:
        metrics: counts the events.
        entries: most responses, and most query vectors, in the process; 0 for none.
        ttl_s: lifetime of an entry, in seconds.
        redis_url: address of the Redis that workers share; "" for none.
        redis_timeout_ms: most time that a search spends on Redis, in milliseconds.

    Raises:
        ConfigError: if `redis_url` is not valid.
    """

    def __init__(
        self,
        metrics: Metrics,
        entries: int,
        ttl_s: int = 300,
        redis_url: str = "",
        redis_timeout_ms: int = 20,
    ) -> None:
        size = max(_LEAST_BYTES, entries * _BYTES_PER_ENTRY)
        self._local: dict[Kind, LocalCache] = {
            kind: LocalCache(
                entries, size, ttl_s, TierEvents(metrics, "local", kind), max_value_bytes=MOST_VALUE_BYTES
            )
            for kind in KINDS
            if entries
        }
        self._timeout_s = redis_timeout_ms / 1_000
        self._redis = _redis_cache(redis_url, self._timeout_s, ttl_s, metrics)
        self._flights = {kind: SingleFlight() for kind in KINDS}
        self._keys: tuple[Manifest, Keys] | None = None
        self.enabled = bool(self._local or self._redis)

    def keys(self, index: Index) -> Keys:
        """The keys of an index version, which are kept until the version changes."""
        kept = self._keys
        if kept is None or kept[0] is not index.manifest:
            # Keep the manifest, not the index, which must be free to close.
            kept = self._keys = (index.manifest, Keys.of(index))
        return kept[1]

    def budget(self) -> RedisBudget:
        """The time limit of one search for Redis; use the same budget for all its calls."""
        return RedisBudget(self._timeout_s)

    async def get(self, kind: Kind, key: bytes, budget: RedisBudget | None = None) -> bytes | None:
        """The value of a key, or None.

        Args:
            kind: `vector` or `response`.
            key: a key from `keys`.
            budget: time limit for Redis; None: `redis_timeout_ms`.
        """
        value = self._get_local(kind, key)
        if value is not None or self._redis is None:
            return value
        return await self._get_shared(self._redis, kind, key, budget)

    def put(self, kind: Kind, key: bytes, value: bytes) -> None:
        """Stores a value; Redis receives it in the background."""
        self._put_local(kind, key, value)
        if self._redis is not None:
            self._redis.put(kind, key, value)

    async def get_or_make(
        self,
        kind: Kind,
        key: bytes,
        make: Callable[[], Awaitable[bytes]],
        budget: RedisBudget | None = None,
    ) -> tuple[bytes, bool]:
        """The value of a key; if there is none, one caller makes it, and concurrent callers share it.

        Callers set their own deadline with `asyncio.timeout`; a caller that gives up does not affect the others.

        Args:
            kind: `vector` or `response`.
            key: a key from `keys`.
            make: makes the value, called at most once; it must not request the same kind and key.
            budget: time limit for Redis; None: `redis_timeout_ms`.

        Returns:
            The value, and whether it was not made by this caller.

        Raises:
            Exception: any exception of `make`, also for waiting callers; nothing is stored then. A
                `DeadlineError` or `TimeoutError` is raised only for the caller that made the value.
        """
        if not self.enabled:
            return await make(), False
        value = self._get_local(kind, key)
        if value is not None:
            return value, True

        async def find_or_make() -> tuple[bytes, bool]:
            if self._redis is not None:
                value = await self._get_shared(self._redis, kind, key, budget)
                if value is not None:
                    return value, True
            made = await make()
            self.put(kind, key, made)
            return made, False

        return await self._flights[kind].run(key, find_or_make)

    async def close(self) -> None:
        """Closes the connections to Redis; values that wait to be written are dropped."""
        if self._redis is not None:
            await self._redis.close()

    def _get_local(self, kind: Kind, key: bytes) -> bytes | None:
        return self._local[kind].get(key) if self._local else None

    def _put_local(self, kind: Kind, key: bytes, value: bytes) -> None:
        if self._local:
            self._local[kind].put(key, value)

    async def _get_shared(
        self, redis: "RedisCache", kind: Kind, key: bytes, budget: RedisBudget | None
    ) -> bytes | None:
        value = await redis.get(kind, key, budget or self.budget())
        if value is not None:
            self._put_local(kind, key, value)
        return value


def _redis_cache(url: str, timeout_s: float, ttl_s: int, metrics: Metrics) -> "RedisCache | None":
    if not url:
        return None
    from glow_service.redis import RedisCache

    return RedisCache(url, timeout_s, ttl_s, metrics)
