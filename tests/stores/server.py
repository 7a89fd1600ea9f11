"""A real Milvus server of the tests' own, which asks for credentials: started, killed and started again over the same data.

A machine has one at a time, because the wheel's etcd listens on ports that nothing changes; whoever comes second waits.
"""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from pymilvus import MilvusClient

from tests.ports import free_port

TOKEN = "root:Milvus"  # noqa: S105 - Milvus' own default
START_S, PATIENCE_S = 300.0, 30.0
ETCD_PEERS = 2380
SERVER = (sys.executable, "-c", "import milvus; milvus.main()")
PORTS = (
    "etcd", "root_coord", "proxy", "proxy_internal", "query_coord", "query_node", "index_coord", "index_node",
    "data_coord", "data_node",
)  # fmt: skip


class Milvus:
    """One server over the data in `folder`; `address` stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        if not os.access("/run", os.W_OK):
            pytest.skip("the wheel's Milvus writes to /run/milvus, which needs root")
        self._folder = folder
        self._ports = {name: free_port() for name in PORTS}
        self._turn = Path(tempfile.gettempdir(), f"glow-milvus-{os.getuid()}.lock").open("wb")
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"milvus://127.0.0.1:{self._ports['proxy']}"

    def start(self) -> None:
        """Starts it, unless it runs, and waits until it answers.

        After a kill its own sessions hold it up until they expire, and it may give up: it is started again, as by `restart: always`.
        """
        if self._process is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + START_S
        while not self._try():
            self.kill()
            if time.monotonic() > until:
                raise AssertionError(
                    f"Milvus did not start: {(self._folder / 'out.log').read_text()[-2000:]}"
                )

    def _try(self) -> bool:
        options = [f"--{name.replace('_', '-')}-port={port}" for name, port in self._ports.items()]
        self._process = subprocess.Popen(
            [*SERVER, "--data", str(self._folder), "--authorization-enabled=true", *options],
            stdout=(self._folder / "out.log").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                return False
            time.sleep(0.3)
        return True

    def _answers(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self._ports['proxy']}"
            MilvusClient(uri=url, token=TOKEN, timeout=2.0).list_collections()
        except Exception:
            return False
        return True

    def kill(self) -> None:
        """Ends it without warning."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            until = time.monotonic() + START_S
            while not all(map(_is_free, (ETCD_PEERS, *self._ports.values()))) and time.monotonic() < until:
                time.sleep(0.1)  # what the server started itself ends a moment later

    def remove(self) -> None:
        """Ends it, and its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._turn.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) != 0
