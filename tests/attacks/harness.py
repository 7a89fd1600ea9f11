"""What the attacks share: a service as users start it, costly requests, a plain client that is measured, and hostile ones."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
START_S = 120.0
KEYS = {name: f"{name:k<43}" for name in ("plain", "mallory", "trudy")}
"""Names of API keys -> the keys."""
QUESTION = "how do I remove a directory and everything that is in it"
QUERIES = (
    "remove a directory and everything in it",
    "parse a date from a string",
    "run a function in another thread",
    "read a file line by line",
    "sort a list of dictionaries by a key",
)
Body = dict[str, Any]


def explain_batch(searches: int = 64, top_k: int = 100) -> Body:
    """Searches whose every hit is encoded once more, with each word left out; 8 KB."""
    search = {"top_k": top_k, "fields": [], "explain": {"leave_one_out": True}, "timeout_ms": 30_000}
    return {"searches": [{"query": f"{QUESTION} {number}", **search} for number in range(searches)]}


def plain_batch(searches: int = 64) -> Body:
    body = {"top_k": 100, "highlight": True, "timeout_ms": 30_000}
    return {"searches": [{"query": f"{QUESTION} {number}", **body} for number in range(searches)]}


def prefix_batch() -> Body:
    """Searches whose last word is one letter, and may be any word that begins with it."""
    body = {"top_k": 100, "highlight": True, "prefix": True, "timeout_ms": 30_000}
    letters = "abcdefghimnoprst"
    return {"searches": [{"query": f"{number} {each}", **body} for number, each in enumerate(letters)]}


def rerank_search(depth: int = 200) -> Body:
    """One search whose first hits are all re-ranked."""
    more = {"top_k": 10, "candidates": depth, "rerank": {"depth": depth}}
    return {"query": "how do i read a file line by line", **more}


def filter_batch(field: str, searches: int = 64) -> Body:
    """Searches with filters of 961 terms each; 64 are 1.6 MB."""
    pair = [{"field": field, "eq": "a"}, {"field": field, "gte": "b", "lt": "c"}]
    filters = {"and": [{"not": {"or": pair}}] * 240}
    return {"searches": [{"query": f"{QUESTION} {number}", "filter": filters} for number in range(searches)]}


@dataclass
class Service:
    """A running service."""

    url: str
    process: subprocess.Popen[bytes]

    def workers(self) -> set[int]:
        """Process numbers of the workers that run."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return {int(child) for child in children if _is_alive(child)}


def _is_alive(pid: str) -> bool:
    """Whether a child still runs: one that was killed is a zombie until its parent has seen it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def serving(index_root: Path, *flags: str, keys: bool = False) -> Iterator[Service]:
    """Starts `glow serve` and waits until it is ready; with `keys`, requests need one of `KEYS`."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")}
    if keys:
        environment["GLOW_API_KEYS"] = ",".join(
            f"{name}:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items()
        )
    command = [sys.executable, "-m", "glow", "serve", "--index-root", str(index_root), "--port", str(port)]
    process = subprocess.Popen(
        [*command, *flags], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    service = Service(f"http://127.0.0.1:{port}", process)
    try:
        deadline = time.monotonic() + START_S
        while not _is_ready(service.url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the service did not get ready")
            time.sleep(0.05)
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
    """A client that asks one ordinary question after another, at a steady pace, each new."""

    url: str
    pace_s: float = 0.05
    is_new_connection: bool = False
    ms: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)  # 0 where the connection failed
    ended: threading.Event = field(default_factory=threading.Event)

    def ask(self, seconds: float) -> None:
        """Asks for so long, or until `ended` is set."""
        headers = {"X-API-Key": KEYS["plain"]}
        end = time.monotonic() + seconds
        client = httpx.Client(timeout=60, headers=headers)
        while time.monotonic() < end and not self.ended.is_set():
            number = len(self.ms)
            started = time.perf_counter()
            if self.is_new_connection:
                client.close()
                client = httpx.Client(timeout=60, headers=headers)
            try:
                body = {"query": f"{QUERIES[number % len(QUERIES)]} {number}"}
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
def hostile(url: str, path: str, body: Body | None) -> Iterator[dict[int, int]]:
    """Two keys send a body, or fetch the path without one, from two connections each, and try again at once.

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

    keys = [KEYS[name] for name in ("mallory", "trudy")] * 2
    threads = [threading.Thread(target=attack, args=(key,), daemon=True) for key in keys]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def peak_mb(pid: int) -> float:
    """Most memory that a process had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1_000 for line in lines if line.startswith("VmHWM"))
