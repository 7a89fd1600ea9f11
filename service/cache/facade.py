"""The cache as the rest of the service sees it: this process's memory first, then Redis, then the work itself."""

from collections.abc import Awaitable, Callable

from glow.artifact import Manifest
from glow.index import Index
from glow_service.cache.events import KINDS, Kind, TierEvents
from glow_service.cache.keys import Keys
from glow_service.cache.local import LocalCache
from glow_service.cache.shared import RedisBudget, RedisCache
from glow_service.cache.single_flight import SingleFlight
from glow_service.telemetry import Metrics

__all__ = ["Cache"]

# Answers differ in size a thousandfold, so their number alone bounds no memory.
_LEAST_BYTES = 64 << 20
MOST_VALUE_BYTES = 1 << 20
_BYTES_PER_ENTRY = 4 << 10


class Cache:
    """Values by kind and key, made once.

    It belongs to one event loop. With no entries and no Redis it keeps nothing and costs nothing.

    Args:
        metrics: counts what happens.
        entries: answers, and as many query vectors, that the process keeps; 0 for none.
        ttl_s: how long an entry is kept, in seconds.
        redis_url: of the Redis that workers share; "" for none.
        redis_timeout_ms: most time that a search spends on it, in milliseconds.

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
        self._redis = RedisCache(redis_url, self._timeout_s, ttl_s, metrics) if redis_url else None
        self._flights = {kind: SingleFlight() for kind in KINDS}
        self._keys: tuple[Manifest, Keys] | None = None
        self.enabled = bool(self._local or self._redis)

    def keys(self, index: Index) -> Keys:
        """The keys of an index version; made when it is first seen, then at hand."""
        kept = self._keys
        if kept is None or kept[0] is not index.manifest:
            # The manifest stands for the index, which must not stay open because of this.
            kept = self._keys = (index.manifest, Keys.of(index))
        return kept[1]

    def budget(self) -> RedisBudget:
        """A search's time for Redis, `redis_timeout_ms`; give the same one to every call of that search."""
        return RedisBudget(self._timeout_s)

    async def get(self, kind: Kind, key: bytes, budget: RedisBudget | None = None) -> bytes | None:
        """The value under a key, or None.

        Args:
            kind: `vector` or `response`.
            key: from `keys`.
            budget: time for Redis; `redis_timeout_ms` where None.
        """
        value = self._get_local(kind, key)
        if value is not None or self._redis is None:
            return value
        return await self._get_shared(self._redis, kind, key, budget)

    def put(self, kind: Kind, key: bytes, value: bytes) -> None:
        """Keeps a value, soon in Redis too."""
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
        """The value under a key; where there is none, one caller makes it and those that ask meanwhile share it.

        A deadline is the caller's: `asyncio.timeout` around this. Leaving harms nobody who waits for the same value.

        Args:
            kind: `vector` or `response`.
            key: from `keys`.
            make: makes the value; it must not ask for the same kind and key. Called at most once.
            budget: time for Redis; `redis_timeout_ms` where None.

        Returns:
            the value, and whether this caller was spared making it.

        Raises:
            Exception: whatever `make` raises, for those too who waited for it; nothing is kept then. A
                `DeadlineError` or `TimeoutError` is the maker's alone.
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
        """Lets go of Redis; what waits to be written is dropped."""
        if self._redis is not None:
            await self._redis.close()

    def _get_local(self, kind: Kind, key: bytes) -> bytes | None:
        return self._local[kind].get(key) if self._local else None

    def _put_local(self, kind: Kind, key: bytes, value: bytes) -> None:
        if self._local:
            self._local[kind].put(key, value)

    async def _get_shared(
        self, redis: RedisCache, kind: Kind, key: bytes, budget: RedisBudget | None
    ) -> bytes | None:
        value = await redis.get(kind, key, budget or self.budget())
        if value is not None:
            self._put_local(kind, key, value)
        return value
