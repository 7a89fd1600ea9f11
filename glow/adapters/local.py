"""A local service that this process starts: an index in a directory, a server, and a process that applies writes."""

import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from glow.client import GlowClient
from glow.errors import ConfigError, GlowError

__all__ = ["LocalService"]

READY_S, POLL_S = 60.0, 0.1
GLOW = (sys.executable, "-m", "glow")


class LocalService:
    """Builds an index of documents, and serves it until `close` or the end of the program.

    Args:
        records: documents in the format of `glow build`.
        index_root: directory of the index versions; it may exist.

    Attributes:
        url: address of the service, reachable only from this machine.
        write_key: the service's key for writing.

    Raises:
        ConfigError: if the build fails, with its last error line, or the server does not start in time.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]], index_root: Path) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        build = [*GLOW, "build", "--input", "-", "--index-root", str(index_root)]
        done = subprocess.run(build, input=lines, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        if done.returncode:
            raise ConfigError(f"building the index failed: {_last_line(done.stderr)}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.url, self.write_key = f"http://127.0.0.1:{port}", secrets.token_urlsafe(24)
        secret = {"GLOW_WRITE_KEY": hashlib.sha256(self.write_key.encode()).hexdigest()}
        root = ("--index-root", str(index_root))
        serve = (*GLOW, "serve", *root, "--port", port, "--workers", "1", "--poll-interval-s", "0.1")
        ingest = (*GLOW, "ingest", *root, "--poll-interval-s", "0.1")
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        quiet["env"] = {**os.environ, **secret}
        processes = [subprocess.Popen(command, **quiet) for command in (serve, ingest)]  # noqa: S603 - our own
        self.close = weakref.finalize(self, _stop, processes)
        self._wait(processes[0])

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + READY_S
        with GlowClient(self.url) as client:
            while time.monotonic() < until and server.poll() is None:
                try:
                    client.search("ready", top_k=1)
                    return
                except GlowError:
                    time.sleep(POLL_S)
        self.close()
        raise ConfigError(f"the service did not start on {self.url} within {READY_S:.0f} s; see `glow serve`")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
