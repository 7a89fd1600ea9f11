"""What the attacks share: a service as users start it, a plain client that is measured, and hostile ones, all on loopback."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.ports import free_port

__all__ = ["KEYS", "ROOT", "Plain", "Service", "hostile", "peak_mb", "serving", "until"]

ROOT = Path(__file__).parent.parent.parent
START_S = 120.0
KEYS = {name: f"{name:k<43}" for name in ("plain", "mallory", "trudy")}
"""Names of API keys -> the keys."""
QUERIES = (
    "remove a directory and everything in it",
    "parse a date from a string",
    "run a function in another thread",
    "read a file line by line",
    "sort a list of dictionaries by a key",
)


@dataclass
class Service:
    """A running service."""

    url: str
    process: subprocess.Popen[bytes]

    def workers(self) -> list[int]:
        """Process numbers of the workers; of the service itself where it has one process."""
        listed = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        pids = [pid for pid in map(int, listed.stdout.split()) if _is_alive(pid)]
        return pids or [self.process.pid]


def _is_alive(pid: int) -> bool:
    """Whether a child still runs: one that was killed is a zombie until its parent has seen it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def serving(index_root: Path, *flags: str, keys: bool = False, tree: Path = ROOT) -> Iterator[Service]:
    """Starts `glow serve` and waits until it is ready.

    Args:
        index_root: what it serves.
        flags: of the command.
        keys: whether requests need one of `KEYS`.
        tree: the checkout whose code is served, so that two can be compared.
    """
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")}
    if keys:
        environment["GLOW_API_KEYS"] = ",".join(
            f"{name}:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items()
        )
    if tree != ROOT:
        environment["PYTHONPATH"] = f"{tree}:{tree / '.venv/import-names'}"
    command = [sys.executable, "-m", "glow", "serve", "--index-root", str(index_root), "--port", str(port)]
    process = subprocess.Popen(
        [*command, *flags], cwd=tree, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    service = Service(f"http://127.0.0.1:{port}", process)
    try:
        deadline = time.monotonic() + START_S
        while not _is_ready(service.url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the service did not get ready")
            time.sleep(0.1)
        yield service
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


@dataclass
class Plain:
    """A client that asks one ordinary question after another, at a steady pace, each new.

    Attributes:
        ms: how long each answer took.
        statuses: of each answer; 0 where the connection failed.
    """

    url: str
    pace_s: float = 0.05
    body: dict[str, Any] = field(default_factory=dict)
    is_new_connection: bool = False
    ms: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def ask(self, seconds: float) -> None:
        """Asks for so long."""
        headers = {"X-API-Key": KEYS["plain"]}
        until, number = time.monotonic() + seconds, len(self.ms)
        client = httpx.Client(timeout=60, headers=headers)
        while time.monotonic() < until:
            number += 1
            body = {"query": f"{QUERIES[number % len(QUERIES)]} {number}", **self.body}
            started = time.perf_counter()
            if self.is_new_connection:
                client.close()
                client = httpx.Client(timeout=60, headers=headers)
            try:
                self.statuses.append(client.post(f"{self.url}/search", json=body).status_code)
            except httpx.HTTPError:
                self.statuses.append(0)
            took = time.perf_counter() - started
            self.ms.append(took * 1_000)
            time.sleep(max(self.pace_s - took, 0.0))
        client.close()

    def summary(self) -> dict[str, Any]:
        """Answers by status, and how long they took."""
        counts = {status: self.statuses.count(status) for status in sorted(set(self.statuses))}
        p50, p99 = np.percentile(self.ms, [50, 99]).round(1).tolist()
        return {"p50_ms": p50, "p99_ms": p99, "max_ms": round(max(self.ms), 1), "statuses": counts}


@contextmanager
def hostile(url: str, path: str, body: dict[str, Any] | None, clients: int = 2) -> Iterator[dict[int, int]]:
    """Two keys send a body, or fetch the path without one, for as long as the block runs, each from so many connections, and try again at once.

    Yields:
        How often each status was answered; 0 where the connection failed.
    """
    ended = threading.Event()
    statuses: dict[int, int] = {}
    method, content = ("GET", None) if body is None else ("POST", json.dumps(body).encode())

    def attack(key: str) -> None:
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        with httpx.Client(timeout=60, headers=headers) as client:
            while not ended.is_set():
                try:
                    status = client.request(method, f"{url}{path}", content=content).status_code
                except httpx.HTTPError:
                    status = 0
                statuses[status] = statuses.get(status, 0) + 1
                if status != 200:
                    ended.wait(0.1)

    threads = [
        threading.Thread(target=attack, args=(KEYS[name],), daemon=True)
        for name in ("mallory", "trudy")
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def peak_mb(pid: int, what: str = "VmHWM") -> float:
    """Most memory that a process had (`VmHWM`), or has (`VmRSS`), in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1_000 for line in lines if line.startswith(what))


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until a condition holds; returns whether it did in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False
