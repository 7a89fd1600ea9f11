"""All that needs Redis: the cache that workers share. Only a service with a Redis imports it (70 ms)."""

from glow_service.redis.cache import RedisCache
from glow_service.redis.link import check_redis_url, ping_redis

__all__ = ["RedisCache", "check_redis_url", "ping_redis"]
