"""The cache: query vectors and answers, in this process and, where one is given, in a Redis that workers share."""

from service.cache.events import EVENTS, Kind
from service.cache.facade import Cache
from service.cache.keys import Keys
from service.cache.link import check_redis_url
from service.cache.shared import RedisBudget

__all__ = ["EVENTS", "Cache", "Keys", "Kind", "RedisBudget", "check_redis_url"]
