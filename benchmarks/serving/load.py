"""Starts a server on given cores, sends it real queries, and measures its resources.

wrk makes closed loops, GLOW's small compiled generator makes open loops and exact counts. h2load is not suitable for open loops: its
connections all fire at the same instants, which makes bursts, and it counts latency from the sending rather than from the due time.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.collection import read_queries

MAX_CHARS = 10_000
"""The service's default limit of a query."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: GET without a body, POST of JSON with one."""

    path: str
    body: str = ""


def search_request(text: str, top_k: int = 10) -> Request:
    """GLOW's request: ids and scores of the best hits, without their texts."""
    return Request("/search", json.dumps({"query": text, "top_k": top_k, "fields": []}))


def query_texts(folders: Iterable[Path], seed: int = 0) -> list[str]:
    """The distinct query texts of data directories, judged or not, in a seeded order."""
    texts = dict.fromkeys(
        query.text.strip() for folder in folders for query in read_queries(folder / "queries.jsonl")
    )
    known = [text for text in texts if text]
    return [known[position] for position in np.random.default_rng(seed).permutation(len(known))]


def mixed_texts(texts: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """Distinct queries from one word to the longest allowed, made by joining real ones.

    Half are real queries cut or joined to 1-32 words; the lengths of the others are uniform up to 300 words.
    """
    rng = np.random.default_rng(seed)
    words = [word for text in texts for word in text.split()]
    made: dict[str, None] = {}
    while len(made) < count:
        length = int(rng.integers(1, 33) if rng.random() < 0.5 else rng.integers(33, 301))
        start = int(rng.integers(0, max(1, len(words) - length)))
        text = " ".join(words[start : start + length])
        # A few short texts recur; a number makes each a distinct query.
        made[(f"{text} {len(made)}" if text in made else text)[:MAX_CHARS]] = None
    return list(made)


def write_requests(path: Path, requests: Iterable[Request]) -> Path:
    """Writes `PATH<tab>BODY` lines; JSON holds neither tabs nor line ends."""
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.writelines(f"{request.path}\t{request.body}\n" for request in requests)
    return path


def call(port: int, request: Request, timeout_s: float = 30.0) -> tuple[int, bytes]:
    """Sends one request over a new connection; returns status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        return send(connection, request)
    finally:
        connection.close()


def send(connection: http.client.HTTPConnection, request: Request) -> tuple[int, bytes]:
    """Sends one request over an open connection; returns status and body."""
    headers = {"Content-Type": "application/json"} if request.body else {}
    connection.request("POST" if request.body else "GET", request.path, request.body or None, headers)
    response = connection.getresponse()
    return response.status, response.read()


ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How to start a server."""

    name: str  # name for logs and tables
    command: Sequence[str]  # the command; `{port}` is replaced by the port
    ready: Request  # path that returns 200 when it can serve
    environment: Mapping[str, str] = field(default_factory=dict)  # variables in addition to the caller's
    folder: Path = ROOT  # its working directory


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
    command = [sys.executable, "-m", "glow", "serve", "--index-root", str(index_root.resolve())]
    quiet = ["--port", "{port}", "--no-page", "--log-level", "warning"]
    return ServerSpec("GLOW", [*command, *quiet, *flags], Request("/readyz"))


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(spec: ServerSpec, logs: Path, cores: str) -> Iterator[Running]:
    """Starts a server pinned to cores; stops it and its children at the end of the block."""
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


HERE = Path(__file__).resolve().parent
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Closed:
    """The measurements of wrk."""

    requests: int  # responses with a 2xx status
    errors: int  # other responses, and requests without one
    seconds: float  # duration
    p50_ms: float  # p50_ms, p99_ms, max_ms: latency; wrk adds the waits of requests that a slow one held back
    p99_ms: float
    max_ms: float
    repeats: int  # requests sent after the end of the file; 0: no query was repeated
    generator_cpu_s: float  # CPU seconds of wrk

    @property
    def per_second(self) -> float:
        """Successful responses per second."""
        return self.requests / self.seconds


def run_wrk(url: str, requests: Path, clients: int, seconds: float, cores: str, threads: int = 1) -> Closed:
    """Keeps `clients` requests in flight for a while; needs wrk (Debian: `apt install wrk`).

    wrk rounds the duration to whole seconds.
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
    """The requests of a run of `OpenLoop`, in the order of completion."""

    due_s: NDArray[np.float64]  # float64 [n], due time since the start
    lag_ms: NDArray[np.float64]  # float64 [n], delay of the sending
    status: NDArray[np.int64]  # int64 [n], 0 without a response
    latency_ms: NDArray[np.float64]  # float64 [n], from the due time to the end of the response

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
    """GLOW's load generator, compiled with the machine's C compiler."""

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
