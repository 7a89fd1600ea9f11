"""Starts a server on given cores, waits until it responds, measures its resources, and stops it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serving.workload import Request, call

__all__ = ["ROOT", "Running", "ServerSpec", "free_port", "our_service", "running"]

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How to start a server.

    Attributes:
        name: name for logs and tables.
        command: the command; `{port}` is replaced by the port.
        ready: path that returns 200 when it can serve.
        environment: variables in addition to the caller's.
        folder: its working directory.
    """

    name: str
    command: Sequence[str]
    ready: Request
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = ROOT


@dataclass(frozen=True, slots=True)
class Running:
    """A running server."""

    name: str
    port: int
    pid: int
    log: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def pids(self) -> list[int]:
        """The process and its descendants."""
        pids, waiting = [], [self.pid]
        while waiting:
            pid = waiting.pop()
            pids.append(pid)
            try:
                waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            except OSError:
                continue
        return pids

    def cpu_s(self) -> float:
        """User and system CPU seconds of all its processes so far."""
        return sum(_cpu_s(pid) for pid in self.pids())

    def memory_mb(self, kind: str = "Rss") -> float:
        """Resident megabytes of all its processes: `Rss`, or `Pss`, which divides shared pages among processes."""
        return sum(_rollup_kb(pid, kind) for pid in self.pids()) / 1024


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def _rollup_kb(pid: int, kind: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))


def our_service(index_root: Path, *flags: str) -> ServerSpec:
    """`glow serve` over an index, without access log and search page."""
    command = [
        sys.executable,
        "-m",
        "glow",
        "serve",
        "--index-root",
        str(index_root.resolve()),
        "--port",
        "{port}",
    ]
    quiet = ["--no-access-log", "--no-page", "--log-level", "warning"]
    return ServerSpec("GLOW", [*command, *quiet, *flags], Request("/readyz"))


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(spec: ServerSpec, logs: Path, cores: str) -> Iterator[Running]:
    """Starts a server pinned to cores; stops it and its children at the end of the block.

    Args:
        spec: the server.
        logs: directory for its logs.
        cores: its cores, in the syntax of `taskset -c`: `0` or `0,1` or `0-3`.

    Raises:
        RuntimeError: if it ended or did not respond in time; the message has the end of its log.
    """
    port = free_port()
    log = logs / f"{spec.name.replace('/', '-')}-{port}.log"
    command = ["taskset", "-c", cores, *(part.replace("{port}", str(port)) for part in spec.command)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")}
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=spec.folder,
            env={**environment, **spec.environment},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Running(spec.name, port, process.pid, log)
    try:
        _wait_until_ready(server, process, spec.ready)
        yield server
    finally:
        _stop(process)


def _wait_until_ready(server: Running, process: subprocess.Popen[bytes], ready: Request) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if call(server.port, ready)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    log = server.log.read_text(errors="replace")[-2_000:]
    raise RuntimeError(f"{server.name} did not get ready on port {server.port}; its log ends with\n{log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM and then SIGKILL to its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_TIMEOUT_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()
