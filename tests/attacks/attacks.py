"""Each attack: starts a service, measures a plain client alone, then beside the attack."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from glow_service.telemetry.metrics import WINDOW_S
from tests.attacks.harness import KEYS, Plain, Service, hostile, peak_mb, serving
from tests.attacks.requests import explain_batch, filter_batch, plain_batch, rerank_search
from tests.attacks.slow import slow_clients

__all__ = ["ATTACKS"]

LIMITS = ("--workers", "2", "--rate-limit", "20", "--rate-burst", "50")
Figures = dict[str, Any]


def _beside(
    index_root: Path,
    seconds: float,
    tree: Path,
    body: dict[str, Any],
    path: str = "/search/batch",
    flags: Sequence[str] = LIMITS,
) -> Figures:
    """A plain client alone and beside two hostile keys at their limits."""
    with serving(index_root, *flags, keys=True, tree=tree) as service:
        Plain(service.url, pace_s=0.06).ask(2.0)
        alone, beside = (Plain(service.url, pace_s=0.06) for _ in range(2))
        alone.ask(seconds)
        with hostile(service.url, path, body) as statuses:
            beside.ask(seconds)
        lag = _loop_lag(service)
    ratio = round(beside.summary()["p99_ms"] / alone.summary()["p99_ms"], 2)
    return {
        "alone": alone.summary(),
        "beside": beside.summary(),
        "hostile": dict(statuses),
        "p99_ratio": ratio,
        "loop_lag_ms": lag,
    }


def _loop_lag(service: Service) -> float | None:
    lines = httpx.get(f"{service.url}/metrics", timeout=60).text.splitlines()
    lags = [float(line.split()[-1]) for line in lines if line.startswith("glow_loop_lag_seconds")]
    return round(lags[0] * 1_000, 1) if lags else None


def explained_batches(index_root: Path, seconds: float, tree: Path) -> Figures:
    """As many explained hits as a batch may have."""
    refused = explain_batch()
    with serving(index_root, *LIMITS, keys=True, tree=tree) as service:
        headers = {"X-API-Key": KEYS["mallory"]}
        started = time.perf_counter()
        with httpx.Client(timeout=120, headers=headers) as client:
            status = client.post(f"{service.url}/search/batch", json=refused).status_code
        first = {"status": status, "seconds": round(time.perf_counter() - started, 2)}
    legal = refused if status == 200 else explain_batch(3, 20)
    return {"largest": first, **_beside(index_root, seconds, tree, legal)}


def plain_batches(index_root: Path, seconds: float, tree: Path) -> Figures:
    """Full batches of ordinary searches."""
    return _beside(index_root, seconds, tree, plain_batch())


def re_ranking(index_root: Path, seconds: float, tree: Path) -> Figures:
    """Searches that read as many hits again as they may, as fast as they are answered; no rate limit."""
    flags = ("--workers", "2", "--cache-entries", "0")
    return _beside(index_root, seconds, tree, rerank_search(), "/search", flags)


def long_filters(index_root: Path, seconds: float, tree: Path) -> Figures:
    """One batch of long filters after the other, and how long /healthz waits meanwhile."""
    with serving(index_root, "--workers", "1", tree=tree) as service:
        field = _string_field(service)
        bodies = [filter_batch(field), filter_batch(field, 4)]
        time.sleep(WINDOW_S)  # what the gauge shows shall be of the attack, not of the start
        watched = ProcessPoolExecutor(1).submit(_health_waits, service.url, seconds)
        statuses: dict[int, int] = {}
        until_time = time.monotonic() + seconds
        with httpx.Client(timeout=60) as client:
            while time.monotonic() < until_time:
                for each in bodies:
                    status = client.post(f"{service.url}/search/batch", json=each).status_code
                    statuses[status] = statuses.get(status, 0) + 1
        lag = _loop_lag(service)
    return {"statuses": statuses, "healthz_max_ms": round(max(watched.result()), 1), "loop_lag_ms": lag}


def _health_waits(url: str, seconds: float) -> list[float]:
    """How long /healthz took, in milliseconds, each time; in a process of its own, so that no attack delays it."""
    waits: list[float] = []
    until = time.monotonic() + seconds
    with httpx.Client(timeout=60) as client:
        while time.monotonic() < until:
            started = time.perf_counter()
            client.get(f"{url}/healthz")
            waits.append((time.perf_counter() - started) * 1_000)
            time.sleep(0.01)
    return waits


def _string_field(service: Service) -> str:
    columns = httpx.get(f"{service.url}/info", timeout=60).json()["index"]["columns"]
    return next(iter(columns))


def _under_load(
    index_root: Path, seconds: float, tree: Path, harm: Callable[[Service, Path], None]
) -> Figures:
    """New connections of a plain client while something happens to a worker."""
    copy = index_root.parent / f".{index_root.name}-attacked"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(index_root, copy)
    try:
        with serving(copy, "--workers", "2", tree=tree) as service:
            plains = [Plain(service.url, pace_s=0.02, is_new_connection=True) for _ in range(2)]
            threads = [threading.Thread(target=plain.ask, args=(seconds,)) for plain in plains]
            for thread in threads:
                thread.start()
            time.sleep(1.0)
            harm(service, copy)
            for thread in threads:
                thread.join()
            ready = httpx.get(f"{service.url}/readyz", timeout=60)
            both = Plain(service.url)
            for plain in plains:
                both.ms += plain.ms
                both.statuses += plain.statuses
            return {**both.summary(), "readyz": {"status": ready.status_code, **_workers(ready)}}
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _workers(ready: httpx.Response) -> dict[str, Any]:
    workers = ready.json().get("workers")
    return {} if workers is None else {"workers": workers}


def _kill(service: Service, _: Path) -> None:
    os.kill(service.workers()[0], signal.SIGKILL)


def _hang_up(service: Service, _: Path) -> None:
    service.process.send_signal(signal.SIGHUP)


def _damage_and_kill(service: Service, root: Path) -> None:
    name = (root / "CURRENT").read_text(encoding="utf-8").strip()
    path = root / name / "vectors.faiss"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    other = path.with_suffix(".new")
    other.write_bytes(bytes(content))
    other.replace(path)
    _kill(service, root)


def killed_worker(index_root: Path, seconds: float, tree: Path) -> Figures:
    """One of two workers is killed."""
    return _under_load(index_root, seconds, tree, _kill)


def hang_up(index_root: Path, seconds: float, tree: Path) -> Figures:
    """The terminal of the service is closed."""
    return _under_load(index_root, seconds, tree, _hang_up)


def damaged_file(index_root: Path, seconds: float, tree: Path) -> Figures:
    """A file of the live version is damaged, then a worker is killed, which cannot come back."""
    return _under_load(index_root, seconds, tree, _damage_and_kill)


def large_answers(index_root: Path, seconds: float, tree: Path) -> Figures:
    """Every legal way to ask for much of an index of 60 documents of 950 KB, one after the other."""
    from tests.attacks.large import large_index, worst_requests

    root = large_index(index_root)
    with serving(root, "--workers", "1", tree=tree) as service:
        pid = service.workers()[0]
        for more in ({}, {"explain": True, "timeout_ms": 30_000}):
            body = {"query": "bees", "top_k": 1, **more}
            httpx.post(f"{service.url}/search", json=body, timeout=60)
        rest = peak_mb(pid, "VmRSS")
        rows = []
        with httpx.Client(timeout=120) as client:
            for name, path, body in worst_requests():
                answer = client.post(f"{service.url}{path}", json=body)
                rows.append(
                    {
                        "request": name,
                        "status": answer.status_code,
                        "answer_mb": round(len(answer.content) / 1e6, 1),
                        "peak_mb": round(peak_mb(pid)),
                    }
                )
    return {"rest_mb": round(rest), "requests": rows}


ATTACKS: dict[str, Callable[[Path, float, Path], Figures]] = {
    "explained-batches": explained_batches,
    "plain-batches": plain_batches,
    "re-ranking": re_ranking,
    "long-filters": long_filters,
    "large-answers": large_answers,
    "slow-clients": slow_clients,
    "killed-worker": killed_worker,
    "hang-up": hang_up,
    "damaged-file": damaged_file,
}
