"""All that needs Redis: the cache that workers share, and the channel of replicas. Only a service with a Redis imports it (70 ms)."""

from glow_service.redis.cache import RedisCache
from glow_service.redis.link import Channel, channel_name, check_redis_url, ping_redis

__all__ = ["Channel", "RedisCache", "channel_name", "check_redis_url", "ping_redis"]
