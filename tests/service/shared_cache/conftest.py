"""The redis-server of a test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.shared_cache.harness import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: the shared cache was not tested")
    running = RedisServer(tmp_path)
    running.start()
    yield running
    running.kill()
