"""The cache of responses and query vectors: in the process and, if there is a Redis, shared with other processes.

A key is the hash of everything that an entry depends on. A change gives a new key, so invalidation is not needed.
"""

import asyncio
import dataclasses
import struct
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from glow import __version__
from glow.artifact import Manifest
from glow.index import Index
from glow_service.errors import DeadlineError
from glow_service.telemetry import KINDS, Kind, Metrics, RedisBudget, TierEvents

if TYPE_CHECKING:
    from glow_service.redis import RedisCache

# Part of every key; increase it if the format of entries or the input of keys changes.
_KEY_VERSION = 5
# 160 bits: nobody can find two texts with the same hash.
_DIGEST_BYTES = 20
_FACTS = (b"f", b"t")


class Keys:
    """Makes the keys of one index version."""

    def __init__(self, model: str, terms: str, version: str) -> None:
        # Vectors stay valid across index versions: they depend only on the model and the term statistics.
        self._vector = blake2b(_encoded(("vector", model, terms)), digest_size=_DIGEST_BYTES)
        # Another release may give a different response.
        page = ("response", __version__, model, terms, version)
        self._page = blake2b(_encoded(page), digest_size=_DIGEST_BYTES)

    @classmethod
    def of(cls, index: Index) -> "Keys":
        """The keys of an open index; making them takes about a millisecond, so keep them.

        They contain the manifest's hash, because versions of different indexes may have the same name.
        """
        hashes = index.manifest.hashes
        return cls(hashes["model"], hashes["terms"], f"{index.version}@{index.manifest.hash}")

    def vector(self, text: str) -> bytes:
        """The key of a query's vector: printable ASCII, the same length for every text."""
        state = self._vector.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return b"glow:%d:vector:%s" % (_KEY_VERSION, state.hexdigest().encode())

    def page(self, *request: Any) -> bytes:
        """The key of a response: printable ASCII, the same length for every request.

        Lists equal tuples, and the order of mappings does not matter; 1, 1.0 and True differ, as do classes of
        different names.
        """
        state = self._page.copy()
        state.update(_encoded(request))
        return b"glow:%d:page:%s" % (_KEY_VERSION, state.hexdigest().encode())


def _encoded(value: Any) -> bytes:
    """Encodes a value so that different values give different bytes: each part starts with its type and length."""
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return b"s%d:%b" % (len(raw), raw)
    if isinstance(value, int):
        return _FACTS[value] if isinstance(value, bool) else b"i%d;" % value
    if value is None:
        return b"n"
    if isinstance(value, tuple | list):
        return b"l%d:%b" % (len(value), b"".join(map(_encoded, value)))
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"b%d:%b" % (len(value), value)
    return _encoded_mapping(value)


def _encoded_mapping(value: Any) -> bytes:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        parts = [_encoded(name) + _encoded(value[name]) for name in sorted(value)]
    elif isinstance(value, BaseModel):
        parts = [_name_of(type(value)), _encoded(value.model_dump())]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        # The name is needed: `And` and `Or` of a filter have the same fields.
        parts = [_name_of(type(value))]
        for start, name, default in _fields(type(value)):
            part = getattr(value, name)
            # Defaults are left out, for speed: a request sets few of its fields.
            if type(part) is not type(default) or part != default:
                parts.append(start + _encoded(part))
    else:
        raise TypeError(
            f"cannot make a key of {value!r:.80} ({type(value).__name__}); give it as numbers, strings, lists, "
            "mappings with string keys, or dataclasses of them"
        )
    return b"m%d:%b" % (len(parts), b"".join(parts))


@cache
def _name_of(kind: type[Any]) -> bytes:
    return b"c" + _encoded(kind.__name__)


@cache
def _fields(kind: type[Any]) -> tuple[tuple[bytes, str, Any], ...]:
    """Encoded name, name, and default if that is a plain value, of each field that is compared, sorted by name."""
    compared = (field for field in dataclasses.fields(kind) if field.compare)
    fields = sorted(compared, key=lambda field: field.name)
    defaults = (field.default if _is_plain(field.default) else dataclasses.MISSING for field in fields)
    return tuple(
        (_encoded(field.name), field.name, default) for field, default in zip(fields, defaults, strict=True)
    )


def _is_plain(value: object) -> bool:
    return value is None or value == () or isinstance(value, bool | int | str)


# The LRU cache in a process, whose entries also expire.

ENTRY_OVERHEAD_BYTES = 400
"""Approximate memory of an entry besides its value: dictionary slot, key, tuple, expiry."""


class LocalCache:
    """Entries of one kind; all operations take constant time.

    It has no locks: only one event loop may use it.
    """

    def __init__(
        self,
        max_entries: int,  # most entries, >= 1
        max_bytes: int,  # most bytes of keys, values and overhead in total
        ttl_s: float,  # lifetime of an entry after it was stored, in seconds; reads do not extend it
        events: TierEvents,
        clock: Callable[[], float] = time.monotonic,  # returns monotonic seconds
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


# Single-flight: of concurrent searches for the same value, one makes it and the others wait.

Make = Callable[[], Awaitable[tuple[bytes, bool]]]
"""Returns a value, and whether it was found rather than made."""
_Turn = asyncio.Future[tuple[bytes, bool] | None]


class SingleFlight:
    """The first caller leads and makes the value; the others follow.

    The leader runs in its caller's task. If it is canceled or reaches its own deadline, the follower that waited
    longest becomes the leader; the followers receive any other error. Callers of followers set their deadline with
    `asyncio.timeout`; a follower that gives up does not affect the others.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, deque[_Turn]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(self, key: bytes, make: Make) -> tuple[bytes, bool]:
        """Makes a value or waits for the leader's; returns it, and whether this caller did not make it.

        `make` must not request the same key, which would be a deadlock.
        """
        line = self._flights.get(key)
        if line is None:
            self._flights[key] = deque()
        else:
            value = await self._follow(key, line)
            if value is not None:
                return value
        return await self._lead(key, make)

    async def _follow(self, key: bytes, line: deque[_Turn]) -> tuple[bytes, bool] | None:
        """The leader's value, or None if this caller becomes the leader."""
        turn: _Turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            # Canceled at the moment when it became the leader: the next follower must lead.
            if turn.done() and not turn.cancelled() and turn.exception() is None and turn.result() is None:
                self._hand_over(key)
            raise

    async def _lead(self, key: bytes, make: Make) -> tuple[bytes, bool]:
        try:
            made = await make()
        except (DeadlineError, TimeoutError):
            self._hand_over(key)
            raise
        except Exception as error:
            for turn in self._end(key):
                turn.set_exception(error)
            raise
        except BaseException:  # canceled, or the process is about to end
            self._hand_over(key)
            raise
        for turn in self._end(key):
            turn.set_result((made[0], True))
        return made

    def _end(self, key: bytes) -> list[_Turn]:
        return [turn for turn in self._flights.pop(key) if not turn.done()]

    def _hand_over(self, key: bytes) -> None:
        line = self._flights[key]
        while line:
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._flights[key]


# The interface of the cache: looks in this process's memory, then in Redis, then makes the value.

# Responses differ a thousandfold in size, so a limit of their number does not limit memory.
_LEAST_BYTES = 64 << 20
MOST_VALUE_BYTES = 1 << 20
_BYTES_PER_ENTRY = 4 << 10


class Cache:
    """Cached values by kind and key.

    Only one event loop may use it. Without entries and Redis it is disabled.
    """

    def __init__(
        self,
        metrics: Metrics,
        entries: int,  # most responses, and most query vectors, in the process; 0 for none
        ttl_s: int = 300,  # lifetime of an entry, in seconds
        redis_url: str = "",  # address of the Redis that workers share; "" for none
        redis_timeout_ms: int = 20,  # most time that a search spends on Redis, in milliseconds
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
        """The value of a key, or None."""
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
        budget: RedisBudget | None = None,  # time limit for Redis; None: `redis_timeout_ms`
    ) -> tuple[bytes, bool]:
        """The value of a key, and whether this caller did not make it; concurrent callers share one `make`.

        Callers set their own deadline with `asyncio.timeout`; one that gives up does not affect the others. An
        exception of `make` reaches all of them, but a `DeadlineError` or `TimeoutError` only the caller that made
        the value.
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
