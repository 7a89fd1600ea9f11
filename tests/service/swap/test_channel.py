"""Replicas tell one another through a real Redis that CURRENT has changed; without it, each sees that by itself."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis

from glow_service.redis.channel import channel_name
from tests.ports import free_port

Serve = Callable[..., AbstractContextManager[Any]]
Until = Callable[..., None]
StartRedis = Callable[[int], subprocess.Popen[bytes]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def client(port: int) -> Iterator[Any]:
    """A connection to that Redis beside the service's own."""
    with redis.Redis(port=port) as found:
        yield found


def listeners(client: Any, root: Path) -> int:
    try:
        ((_, count),) = client.pubsub_numsub(channel_name(root))
    except redis.ConnectionError:
        return -1
    return int(count)


def test_a_replica_that_does_not_watch_follows_what_another_one_saw(
    versions: Any, serve: Serve, until: Until, start_redis: StartRedis, port: int, client: Any
) -> None:
    start_redis(port)
    url = f"redis://127.0.0.1:{port}/0"
    with (
        serve(poll_interval_s=0.05, redis_url=url) as seeing,
        serve(poll_interval_s=0, redis_url=url) as told,
    ):
        until(lambda: listeners(client, versions.path) == 2)
        versions.publish("b1")
        until(lambda: seeing.live == told.live == "b1")
        for nonsense in (b"", b"a1", b"\xff" * 100_000):
            client.publish(channel_name(versions.path), nonsense)
        time.sleep(0.8)
        assert seeing.live == told.live == "b1"
        assert told.metric('glow_index_swaps_total{outcome="done"}') == 1


def test_reload_reaches_replicas_that_do_not_watch(
    versions: Any,
    serve: Serve,
    until: Until,
    start_redis: StartRedis,
    port: int,
    client: Any,
    admin: dict[str, str],
) -> None:
    settings = {"poll_interval_s": 0, "redis_url": f"redis://127.0.0.1:{port}/0"}
    with serve(**settings) as asked, serve(**settings) as other:
        versions.publish("a2")
        start_redis(port)
        until(lambda: asked.live == other.live == "a2")  # each looks once when it begins to listen
        versions.publish("b1")
        time.sleep(0.3)
        assert asked.live == other.live == "a2"
        assert asked.http.post("/admin/reload", headers=admin).status_code == 200
        until(lambda: other.live == "b1")


def test_a_dead_redis_changes_nothing_and_one_that_comes_back_is_heard_again(
    versions: Any, serve: Serve, until: Until, start_redis: StartRedis, port: int, client: Any
) -> None:
    url = f"redis://127.0.0.1:{port}/0"
    with (
        serve(poll_interval_s=0.05, redis_url=url) as seeing,
        serve(poll_interval_s=0, redis_url=url) as told,
    ):
        versions.publish("b1")
        until(lambda: seeing.live == "b1")
        assert told.live == "a1"
        assert seeing.search().status_code == told.search().status_code == 200
        process = start_redis(port)
        until(lambda: told.live == "b1")  # what it may have missed, it looks for once it can hear
        until(lambda: listeners(client, versions.path) == 2)
        process.kill()
        process.wait()
        versions.publish("a2")
        until(lambda: seeing.live == "a2")
        assert told.live == "b1"
