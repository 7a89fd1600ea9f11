"""Searches over four shards, which are services of ours or deployments of Ray Serve: the same code behind both, one run after the other.

python -m research.scale.serving --index-root SET --queries FILE.jsonl [--rounds 3]
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from glow.artifact import IndexRoot
from glow.search import Index, set_threads, shard_root
from glow_service.search import check_search
from glow_service.settings import Settings
from glow_service.shards import (
    RankCall,
    ShardConnections,
    ShowCall,
    answer_rank,
    answer_show,
    open_session,
    open_set,
    parse_shards,
    read_call,
)
from glow_service.shards.transport import Answers, LocalShards

CLIENTS = (1, 4)
PORT = 9310


@contextmanager
def our_services(root: Path, shards: int) -> Iterator[ShardConnections]:
    """A `glow serve` for each shard."""
    key = secrets.token_urlsafe(24)
    with ExitStack() as stack:
        for shard in range(shards):
            command = [sys.executable, "-m", "glow", "serve", "--index-root", str(shard_root(root, shard))]
            flags = ["--port", str(PORT + shard), "--shard-key", key, "--no-access-log"]
            process = subprocess.Popen([*command, *flags], stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        urls = [f"http://127.0.0.1:{PORT + shard}" for shard in range(shards)]
        for url in urls:
            _wait(f"{url}/readyz")
        yield ShardConnections(parse_shards(",".join(urls)), key)


class RayShards:
    """Deployments of Ray Serve as a transport, asked by their handles."""

    def __init__(self, root: Path, shards: int) -> None:
        from ray import serve

        @serve.deployment(ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=64)
        class Shard:
            def __init__(self, folder: str) -> None:
                set_threads(1)
                self.index = Index.open(Path(folder))

            def rank(self, body: bytes) -> bytes:
                return answer_rank(self.index, read_call(RankCall, body))

            def show(self, body: bytes) -> bytes:
                return answer_show(self.index, read_call(ShowCall, body))

        self.handles = []
        for shard in range(shards):
            own = IndexRoot(shard_root(root, shard))
            deployment = Shard.options(name=f"shard-{shard}").bind(  # type: ignore[attr-defined]
                str(own.folder(own.current()))
            )
            self.handles.append(serve.run(deployment, name=f"glow-{shard}", route_prefix=None))

    def ask(self, verb: str, calls: Mapping[int, bytes], timeout_s: float) -> Answers:
        """As `Transport.ask`."""
        sent = {number: getattr(self.handles[number], verb).remote(body) for number, body in calls.items()}
        return Answers({number: response.result(timeout_s=timeout_s) for number, response in sent.items()})


@contextmanager
def ray_services(root: Path, shards: int) -> Iterator[RayShards]:
    """A local Ray with one replica for each shard."""
    import ray
    from ray import serve

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    serve.start(proxy_location="Disabled")
    try:
        yield RayShards(root, shards)
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()


def measure(index: Index, texts: list[str], searches: int) -> dict[str, dict[str, float]]:
    """p50 and p99 in milliseconds of hybrid searches, by one client and by four."""
    limits = Settings(index_root=Path("unused")).limits
    found: dict[str, dict[str, float]] = {}
    for clients in CLIENTS:
        times: list[float] = []

        def ask(first: int, times: list[float] = times) -> None:
            set_threads(1)
            for number in range(searches):
                text = f"{texts[(first + number) % len(texts)]}"
                checked = check_search({"query": text}, limits, index)
                started = time.perf_counter()
                open_session(index, checked.call).run()
                times.append((time.perf_counter() - started) * 1_000)

        ask(0, [])
        threads = [threading.Thread(target=ask, args=(7 * each,)) for each in range(clients)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found[f"{clients} clients"] = {
            "p50": round(float(np.percentile(times, 50)), 2),
            "p99": round(float(np.percentile(times, 99)), 2),
            "searches a second": round(len(times) / (time.perf_counter() - started), 1),
        }
    return found


def children_mb() -> float:
    """Resident memory of all processes below this one, in MB."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,rss"], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in listed.splitlines()[1:]]
    below, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent, _ in rows if parent in below} - below
        below, grown = below | more, bool(more)
    return sum(size for pid, _, size in rows if pid in below and pid != os.getpid()) / 1024


def main() -> None:
    """Prints a line of JSON for each round and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index-root", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--searches", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    root = IndexRoot(options.index_root)
    folder = root.folder(root.current())
    lines = options.queries.read_text(encoding="utf-8").splitlines()[: options.searches]
    texts = [json.loads(line)["text"] for line in lines]
    local = open_set(folder)
    shards = len(local.shards.shards)
    ways: dict[str, Callable[[], Any]] = {
        "in one process": lambda: _same(local.transport),
        "services of ours": lambda: our_services(root.path, shards),
        "Ray Serve": lambda: ray_services(root.path, shards),
    }
    for number in range(options.rounds):
        for name, way in ways.items():
            with way() as transport:
                index = _with(local, transport)
                row = {"round": number, "way": name, **measure(index, texts, options.searches)}
                sys.stdout.write(json.dumps({**row, "MB": round(children_mb())}) + "\n")
                sys.stdout.flush()


@contextmanager
def _same(transport: Any) -> Iterator[Any]:
    yield transport


def _with(local: Any, transport: Any) -> Any:
    """The open set, its shards reached in another way; services open what is live in their roots."""
    from dataclasses import replace

    return local if isinstance(transport, LocalShards) else replace(local, transport=transport)


def _wait(url: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} does not answer")


if __name__ == "__main__":
    main()
