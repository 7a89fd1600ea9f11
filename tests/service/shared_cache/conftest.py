"""The redis-server of a test."""

import pytest

from tests.service.shared_cache.harness import RedisServer


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    redis_server.start()
    return redis_server
