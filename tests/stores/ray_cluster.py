"""A Ray cluster of the tests' own on this machine: a head that encodes nothing, and nodes that are added and killed.

Each node is a process of its own, as by the command that its operator types. Started from a process with many threads, as one that
runs tests is, a node's own processes can hang between fork and exec. One cluster serves all tests: a start waits for ten seconds.
"""

import os
import sys
import time
from pathlib import Path
from typing import Self

import psutil

from tests.ports import free_port

START_S, TRIES = 90.0, 3
STARTED = b"Ray runtime started."
MEMORY = 150 * 1024 * 1024
ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_gcs_server_port_wait_time_s": "80"}
"""Also of whoever connects: without a common token, or none, a cluster refuses its own nodes."""


class RayCluster:
    """Processes of one cluster; a context."""

    def __init__(
        self,
        folder: Path,  # logs
    ) -> None:
        self._folder = folder
        self._head: psutil.Process | None = None
        self._nodes: list[psutil.Process] = []
        self.address = ""

    def __enter__(self) -> Self:
        os.environ |= ENVIRONMENT
        for _ in range(TRIES):
            port = free_port()
            options = f"--head --port={port} --include-dashboard=false --num-cpus=0"
            self._head = self._started(self._start("head", options))
            if self._head is not None:
                self.address = f"127.0.0.1:{port}"
                return self
        raise AssertionError(f"Ray's head did not start: {self._log('head')}")

    def __exit__(self, *error: object) -> None:
        for each in (*self._nodes, self._head):
            if each is not None:
                _kill(each)
        for name in ENVIRONMENT:
            os.environ.pop(name, None)

    def want_nodes(self, count: int) -> None:
        """Starts nodes of one CPU until so many live."""
        options = f"--address={self.address} --include-log-monitor=false --num-cpus=1"
        for _ in range(TRIES):
            self._nodes = [each for each in self._nodes if each.is_running()]
            starts = [self._start(f"node-{place}", options) for place in range(count - len(self._nodes))]
            self._nodes += [node for node in map(self._started, starts) if node is not None]
            if len(self._nodes) >= count:
                return
        raise AssertionError(f"a node of Ray did not start: {self._log('node-0')}")

    def kill_node_of(self, worker: int) -> None:
        """Kills the node whose worker has this process ID, with all its workers, at once."""
        (node,) = (
            node for node in self._nodes if worker in {each.pid for each in node.children(recursive=True)}
        )
        self._nodes.remove(node)
        _kill(node)

    def _log(self, name: str) -> str:
        return (self._folder / name).read_text(errors="replace")[-2000:]

    def _start(self, name: str, options: str) -> tuple[str, psutil.Popen]:
        # Workers take whatever port is free: by default Ray keeps ten thousand for them, other tests' among these.
        ports = "--min-worker-port=0 --max-worker-port=0"
        common = f"--block --disable-usage-stats --object-store-memory={MEMORY} --log-color=false"
        code = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
        command = [sys.executable, "-c", code, "start", *f"{options} {ports} {common}".split()]
        with (self._folder / name).open("wb") as file:
            return name, psutil.Popen(command, stdout=file, stderr=file, start_new_session=True)

    def _started(self, start: tuple[str, psutil.Popen]) -> psutil.Process | None:
        """The process, once it says that it runs."""
        name, process = start
        until = time.monotonic() + START_S
        while STARTED not in (self._folder / name).read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                _kill(process)
                return None
            time.sleep(0.1)
        return process


def _kill(process: psutil.Process) -> None:
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for each in family:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, 10)
