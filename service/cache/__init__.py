"""The cache of responses and query vectors: in the process and, if there is a Redis, shared with other processes."""

from glow_service.cache.facade import Cache
from glow_service.cache.keys import Keys

__all__ = ["Cache", "Keys"]
