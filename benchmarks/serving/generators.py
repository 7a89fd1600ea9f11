"""Load generators: wrk for closed loops, and GLOW's small compiled generator for open loops and exact counts.

h2load is not suitable for open loops: its connections all fire at the same instants, which makes bursts. It also sends
the same body in all requests, and counts latency from the sending rather than from the due time.
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
    """The measurements of wrk.

    Attributes:
        requests: responses with a 2xx status.
        errors: other responses, and requests without one.
        seconds: duration.
        p50_ms, p99_ms, max_ms: latency; wrk adds the waits of requests that a slow one held back.
        repeats: requests sent after the end of the file; 0: no query was repeated.
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
        """Successful responses per second."""
        return self.requests / self.seconds


def run_wrk(url: str, requests: Path, clients: int, seconds: float, cores: str, threads: int = 1) -> Closed:
    """Keeps `clients` requests in flight for a while; needs wrk (Debian: `apt install wrk`).

    Args:
        url: of the server.
        requests: file made by `write_requests`.
        clients: number of connections.
        seconds: duration, rounded up to whole seconds for wrk.
        cores: cores for wrk, in the syntax of `taskset -c`.
        threads: threads of wrk.
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
    """The requests of a run of `OpenLoop`, in the order of completion.

    Attributes:
        due_s: float64 [n], due time since the start.
        lag_ms: float64 [n], delay of the sending.
        status: int64 [n], 0 without a response.
        latency_ms: float64 [n], from the due time to the end of the response.
    """

    due_s: NDArray[np.float64]
    lag_ms: NDArray[np.float64]
    status: NDArray[np.int64]
    latency_ms: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.status)

    def latencies(self, status: int) -> NDArray[np.float64]:
        """Latencies of the responses with a status, in milliseconds."""
        found: NDArray[np.float64] = self.latency_ms[self.status == status]
        return found

    def counts(self) -> Mapping[str, int]:
        """Status -> number of responses."""
        values, numbers = np.unique(self.status, return_counts=True)
        return {str(value): int(number) for value, number in zip(values, numbers, strict=True)}


class OpenLoop:
    """GLOW's load generator, compiled with the machine's C compiler.

    Args:
        folder: directory of the program and its output.
        cores: its cores, in the syntax of `taskset -c`.
        timeout_ms: time limit of a response.
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
        """Poisson arrivals at `rate` per second."""
        return self._run(port, requests, [rate, seconds, 0, 0], seed)

    def in_flight(
        self, port: int, requests: Path, clients: int, count: int, seconds: float = 86_400.0
    ) -> Answers:
        """Keeps `clients` requests in flight until `count` are sent or `seconds` have passed."""
        return self._run(port, requests, [0, seconds, clients, count], 1)

    def _run(self, port: int, requests: Path, load: list[float], seed: int) -> Answers:
        start = ["taskset", "-c", self._cores, str(self._program), str(port), str(requests), str(self._out)]
        subprocess.run([*start, *map(str, load), str(self._timeout_ms), str(seed)], check=True)
        rows = np.loadtxt(self._out, ndmin=2).reshape(-1, 4)
        return Answers(rows[:, 0] / 1e6, rows[:, 1] / 1e3, rows[:, 2].astype(np.int64), rows[:, 3] / 1e3)
