"""Controls a private redis-server: starts, stops, kills it, and fills it with garbage."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
from redis import Redis
from redis.exceptions import RedisError

from benchmarks.serving.servers import free_port

__all__ = ["RedisServer"]

START_TIMEOUT_S = 20.0


class RedisServer:
    """A redis-server on a free port that saves nothing to disk.

    Args:
        folder: its working directory.
        cores: its cores, in the syntax of `taskset -c`.

    Attributes:
        port: its port, also after restarts.
    """

    def __init__(self, folder: Path, cores: str) -> None:
        self._folder = folder
        self._cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Its address for `--redis-url`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts it empty, and waits until it responds."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            ["taskset", "-c", self._cores, "redis-server", *options, "--dir", str(self._folder)],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._client().ping()
                return
            except RedisError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError("redis-server did not start; is it installed?") from error
                time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal: SIGSTOP stops its responses but not connections, SIGCONT continues, SIGKILL ends it."""
        if self._process is None:
            return
        os.kill(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()
            self._process = None

    def keys(self) -> int:
        """Number of its keys."""
        return int(self._client().dbsize())

    def poison(self, seed: int = 0) -> int:
        """Replaces every value by garbage: random bytes, an empty, cut or changed value, or another type.

        Returns:
            Number of changed keys.
        """
        client, rng, changed = self._client(), np.random.default_rng(seed), 0
        for key in list(client.scan_iter(count=1_000)):
            # A value of another type than text has no bytes to cut.
            found = client.get(key) if client.type(key) == b"string" else b""
            old = found if isinstance(found, bytes) else b""
            flipped = bytearray(old)
            if flipped:
                flipped[int(rng.integers(len(flipped)))] ^= 0xFF
            garbage = [
                rng.bytes(64),
                b"",
                old[: len(old) // 2],
                bytes(flipped),
                b'{"hits": []}',
                b"null",
                None,
            ]
            value = garbage[changed % len(garbage)]
            if value is None:
                client.delete(key)
                client.rpush(key, "a list instead of a value")
            else:
                client.set(key, value, ex=600)
            changed += 1
        return changed

    def close(self) -> None:
        """Ends it, also if it is stopped."""
        self.signal(signal.SIGKILL)

    def _client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=5)
