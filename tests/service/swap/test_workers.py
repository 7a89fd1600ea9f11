"""Swaps of several workers and of several replicas."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis

from glow_service.errors import NotReadyError
from glow_service.live.resources import Resources
from glow_service.live.workers import Readiness, WorkerGroup
from glow_service.redis.link import channel_name
from glow_service.telemetry.metrics import FOLDER_VARIABLE, Metrics
from tests.service.shared_cache.harness import RedisServer
from tests.until import until

ROOT = Path(__file__).parents[3]


def test_workers_that_have_ended_have_no_standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group = WorkerGroup()
    asked = group.ask()
    assert group.asked() == asked
    group.note("v1", "", asked)
    (standing,) = WorkerGroup().statuses()
    assert (standing.version, standing.refused, standing.request) == ("v1", "", asked)
    for name, content in (
        ("live-999999999.json", b'{"pid":999999999,"started":1,"version":"v0","refused":"","request":""}'),
        ("live-1.json", b'{"pid":1,"started":7,"version":"v0","refused":"","request":""}'),
        ("live-2.json", b"half a fi"),
        ("live-3.json", b'{"pid":3}'),
    ):
        (tmp_path / name).write_bytes(content)
    assert WorkerGroup().statuses() == [standing]


NOTE = """
import sys
from glow_service.live.workers import WorkerGroup
WorkerGroup().note("v1", "", "")
print("noted", flush=True)
sys.stdin.readline()
"""


def note_apart() -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", NOTE], cwd=ROOT, **pipes)


def test_all_have_loaded_once_each_has_noted_a_version_whoever_dies_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group = WorkerGroup()
    group.note("v1", "", "")
    assert not group.have_loaded(2)
    with note_apart() as other:
        assert other.stdout is not None and other.stdout.readline() == b"noted\n"
        assert group.have_loaded(2)
        other.kill()
    assert len(group.statuses()) == 1 and group.have_loaded(2)
    assert WorkerGroup().have_loaded(2)  # one that is started again is not alone, though a mate may be


def test_once_all_have_loaded_no_worker_says_otherwise(
    toy_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker was told before, while it loaded or waited for its group, is not remembered."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    group, resources = WorkerGroup(), Resources(toy_index, Metrics())
    readiness = Readiness(resources, group, processes=2)
    with note_apart() as other:

        async def ask() -> None:
            assert other.stdout is not None
            with pytest.raises(NotReadyError, match="still loading"):
                await readiness.check()
            version = resources.load().version
            with pytest.raises(NotReadyError, match="not all workers"):
                await readiness.check()
            group.note(version, "", "")
            assert other.stdout.readline() == b"noted\n"
            assert (await readiness.check()).version == version

        asyncio.run(ask())
        other.kill()
    readiness.close()


def test_workers_take_turns_and_one_that_is_over_is_the_next_ones(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    inside, most = [], []
    two = threading.Barrier(2)

    def load() -> None:
        with WorkerGroup().turn(2):
            inside.append(1)
            two.wait(30)  # a second one comes in
            most.append(len(inside))
            time.sleep(0.05)  # and no third one
            inside.pop()

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(most), max(most), inside) == (6, 2, [])


# Replicas tell one another through a real Redis that CURRENT has changed; without it, each sees that by itself.

Serve = Callable[..., AbstractContextManager[Any]]


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """A connection to that Redis beside the service's own."""
    with redis_server.client() as found:
        yield found


def listeners(client: Any, root: Path) -> int:
    try:
        ((_, count),) = client.pubsub_numsub(channel_name(root))
    except redis.ConnectionError:
        return -1
    return int(count)


def test_a_replica_that_does_not_watch_follows_what_another_one_saw(
    versions: Any, serve: Serve, redis_server: RedisServer, client: Any
) -> None:
    redis_server.start()
    with (
        serve(poll_interval_s=0.05, redis_url=redis_server.url) as seeing,
        serve(poll_interval_s=0, redis_url=redis_server.url) as told,
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
    versions: Any, serve: Serve, redis_server: RedisServer, client: Any, admin: dict[str, str]
) -> None:
    settings = {"poll_interval_s": 0, "redis_url": redis_server.url}
    with serve(**settings) as asked, serve(**settings) as other:
        versions.publish("a2")
        redis_server.start()
        until(lambda: asked.live == other.live == "a2")  # each looks once when it begins to listen
        versions.publish("b1")
        time.sleep(0.3)
        assert asked.live == other.live == "a2"
        assert asked.http.post("/admin/reload", headers=admin).status_code == 200
        until(lambda: other.live == "b1")


def test_a_dead_redis_changes_nothing_and_one_that_comes_back_is_heard_again(
    versions: Any, serve: Serve, redis_server: RedisServer, client: Any
) -> None:
    with (
        serve(poll_interval_s=0.05, redis_url=redis_server.url) as seeing,
        serve(poll_interval_s=0, redis_url=redis_server.url) as told,
    ):
        versions.publish("b1")
        until(lambda: seeing.live == "b1")
        assert told.live == "a1"
        assert seeing.search().status_code == told.search().status_code == 200
        redis_server.start()
        until(lambda: told.live == "b1")  # what it may have missed, it looks for once it can hear
        until(lambda: listeners(client, versions.path) == 2)
        redis_server.kill()
        versions.publish("a2")
        until(lambda: seeing.live == "a2")
        assert told.live == "b1"
