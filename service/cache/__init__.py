"""The cache of responses and query vectors: in the process and, if there is a Redis, shared with other processes."""

from glow_service.cache.events import EVENTS, Kind
from glow_service.cache.facade import Cache
from glow_service.cache.keys import Keys
from glow_service.cache.link import Link, check_redis_url, connector, discard, ping_redis
from glow_service.cache.shared import RedisBudget

__all__ = [
    "EVENTS", "Cache", "Keys", "Kind", "Link", "RedisBudget", "check_redis_url", "connector", "discard",
    "ping_redis",
]  # fmt: skip
