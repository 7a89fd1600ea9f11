"""The load: wrk for closed loops, and a small compiled generator of ours for open loops and exact counts.

h2load is not used for open loops: its connections all fire at the same instants, which makes bursts of as many requests
as there are connections, it sends one body for all, and it counts latency from the sending rather than from when a
request was due.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answers", "Closed", "OpenLoop", "run_wrk"]

HERE = Path(__file__).resolve().parent
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Closed:
    """What wrk measured.

    Attributes:
        requests: answers with a 2xx status.
        errors: other answers, and requests without one.
        seconds: how long it ran.
        p50_ms, p99_ms, max_ms: latency; wrk adds what requests held back by a slow one would have waited.
        repeats: requests sent after the file was used up; 0 means that no query came twice.
        generator_cpu_s: CPU seconds of wrk.
    """

    requests: int
    errors: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    repeats: int
    generator_cpu_s: float

    @property
    def per_second(self) -> float:
        """Good answers a second."""
        return self.requests / self.seconds


def run_wrk(url: str, requests: Path, clients: int, seconds: float, cores: str, threads: int = 1) -> Closed:
    """Keeps `clients` requests in flight for a while; needs wrk (Debian: `apt install wrk`).

    Args:
        url: of the server.
        requests: file made by `write_requests`.
        clients: connections.
        seconds: rounded up to whole ones, as wrk wants them.
        cores: where wrk runs, as `taskset -c` reads them.
        threads: of wrk.
    """
    if shutil.which("wrk") is None:
        raise RuntimeError("wrk is not installed; apt install wrk")
    whole = max(1, round(seconds))
    command = ["taskset", "-c", cores, "wrk", f"-t{min(threads, clients)}", f"-c{clients}", f"-d{whole}s"]
    script = ["--timeout", "30s", "-s", str(HERE / "bodies.lua"), url, "--", str(requests), str(threads)]
    before = os.times()
    done = subprocess.run(
        [*command, *script], capture_output=True, text=True, check=False, timeout=whole + GRACE_S
    )
    after = os.times()
    line = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    if done.returncode or not line.startswith("{"):
        raise RuntimeError(f"wrk failed: {done.stderr or done.stdout}")
    values = json.loads(line)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Closed(
        requests=values["requests"] - values["refused"],
        errors=values["refused"] + values["broken"],
        seconds=values["duration_us"] / 1e6,
        p50_ms=values["p50_us"] / 1e3,
        p99_ms=values["p99_us"] / 1e3,
        max_ms=values["max_us"] / 1e3,
        repeats=values["repeats"],
        generator_cpu_s=cpu,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Each request of a run of `OpenLoop`, in the order of their ends.

    Attributes:
        due_s: float64 [n], when it should have been sent, from the start.
        lag_ms: float64 [n], how much later it was.
        status: int64 [n], 0 where no answer came.
        latency_ms: float64 [n], from when it was due to the end of the answer.
    """

    due_s: NDArray[np.float64]
    lag_ms: NDArray[np.float64]
    status: NDArray[np.int64]
    latency_ms: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.status)

    def latencies(self, status: int) -> NDArray[np.float64]:
        """Latencies of the answers with a status, in milliseconds."""
        found: NDArray[np.float64] = self.latency_ms[self.status == status]
        return found

    def counts(self) -> Mapping[str, int]:
        """Status -> how many."""
        values, numbers = np.unique(self.status, return_counts=True)
        return {str(value): int(number) for value, number in zip(values, numbers, strict=True)}


class OpenLoop:
    """Our generator, compiled with the C compiler of the machine.

    Args:
        folder: where the program and its answers lie.
        cores: where it runs, as `taskset -c` reads them.
        timeout_ms: how long it waits for an answer.
    """

    def __init__(self, folder: Path, cores: str, timeout_ms: int = 30_000) -> None:
        self._program = folder / "openloop"
        self._out = folder / "answers.txt"
        self._cores = cores
        self._timeout_ms = timeout_ms
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError("no C compiler found; apt install gcc")
        source = str(HERE / "openloop.c")
        subprocess.run([compiler, "-O2", "-o", str(self._program), source, "-lm"], check=True)

    def at_rate(self, port: int, requests: Path, rate: float, seconds: float, seed: int = 1) -> Answers:
        """Poisson arrivals of `rate` a second."""
        return self._run(port, requests, [rate, seconds, 0, 0], seed)

    def in_flight(
        self, port: int, requests: Path, clients: int, count: int, seconds: float = 86_400.0
    ) -> Answers:
        """`clients` at a time until `count` are sent, or `seconds` have passed."""
        return self._run(port, requests, [0, seconds, clients, count], 1)

    def _run(self, port: int, requests: Path, load: list[float], seed: int) -> Answers:
        start = ["taskset", "-c", self._cores, str(self._program), str(port), str(requests), str(self._out)]
        subprocess.run([*start, *map(str, load), str(self._timeout_ms), str(seed)], check=True)
        rows = np.loadtxt(self._out, ndmin=2).reshape(-1, 4)
        return Answers(rows[:, 0] / 1e6, rows[:, 1] / 1e3, rows[:, 2].astype(np.int64), rows[:, 3] / 1e3)
