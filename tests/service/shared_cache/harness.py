"""A redis-server of a test's own, and a cache that has nothing but it."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis

from glow_service.cache import Cache
from glow_service.telemetry.metrics import Metrics
from tests.ports import free_port

KEY = b"glow:1:page:abc"
TIMEOUT_S = 0.05
PATIENCE_MS = 5_000
"""Time for Redis in tests that are not about time."""
SLACK_S = 0.25
"""The machine that runs the tests may be busy."""


class RedisServer:
    """A redis-server of the test's own, on a port that it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Starts it with options of its command line and waits until it accepts connections."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "no", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.01)
        raise AssertionError("redis-server did not start")

    def client(self, **options: Any) -> Any:
        """A connection beside the cache's own, to look and to damage."""
        return redis.Redis(port=self.port, **options)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, such as SIGSTOP."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Ends it at once, without a farewell to its clients."""
        if self.process is not None:
            self.process.kill()  # also ends one that is stopped
            self.process.wait()
            self.process = None


def counts(metrics: Metrics, tier: str = "redis", kind: str = "response") -> dict[str, int]:
    """Events of a tier and kind that happened at all."""
    samples = [sample for family in metrics.cache_events.collect() for sample in family.samples]
    labels = {"tier": tier, "kind": kind}.items()
    found = [sample for sample in samples if labels <= sample.labels.items() and sample.value]
    return {sample.labels["event"]: int(sample.value) for sample in found}


@asynccontextmanager
async def open_cache(url: str, **settings: Any) -> AsyncIterator[tuple[Cache, Metrics]]:
    """A cache with Redis alone, so that every call reaches it."""
    values = {"entries": 0, "redis_timeout_ms": round(TIMEOUT_S * 1_000), **settings}
    metrics = Metrics()
    cache = Cache(metrics, redis_url=url, **values)
    try:
        yield cache, metrics
    finally:
        async with asyncio.timeout(5):
            await cache.close()


async def until(true: Any, within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def until_found(cache: Cache, value: bytes, within_s: float = 15.0) -> None:
    """Asks until the cache has the value of `KEY`; until then it has none, and a probe may find out."""
    deadline = time.monotonic() + within_s
    while (found := await cache.get("response", KEY)) != value:
        assert found is None
        assert time.monotonic() < deadline, "it was not found in time"
        await asyncio.sleep(0.01)


async def timed_get(cache: Cache, key: bytes = KEY) -> tuple[bytes | None, float]:
    started = time.monotonic()
    value = await cache.get("response", key)
    return value, time.monotonic() - started
