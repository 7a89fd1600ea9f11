"""All that needs Redis: the cache that workers share, and the channel of replicas. Only a service with a Redis imports it (70 ms)."""

from glow_service.redis.channel import Channel, channel_name
from glow_service.redis.link import check_redis_url, ping_redis
from glow_service.redis.redis_cache import RedisCache

__all__ = ["Channel", "RedisCache", "channel_name", "check_redis_url", "ping_redis"]
