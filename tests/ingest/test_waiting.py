"""Writes that wait for space in the log, for visibility, or for every replica, and delay nobody else."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx

from glow.artifact import IndexRoot
from glow.ingest import INGEST_FOLDER, IngestState, read_accepted
from tests.attacks.harness import ROOT, serving
from tests.ingest.writing import KEY_FLAGS, WRITE, log_bytes
from tests.made_index import documents, made, write
from tests.until import until


def test_a_full_log_is_a_429_at_once(toy_model: Path, tmp_path: Path) -> None:
    root = made(toy_model, write(tmp_path / "first.jsonl", documents(10)), tmp_path / "index", index="flat")
    flags = (*KEY_FLAGS, "--ingest-bytes", "65536", "--workers", "1")
    with serving(root.path, *flags) as service:
        body = {"documents": [{"_id": f"d{each}", "text": "words " * 500} for each in range(10)]}
        answers = [httpx.post(f"{service.url}/documents", json=body, headers=WRITE) for _ in range(4)]
        assert [each.status_code for each in answers] == [202, 202, 429, 429]
        assert log_bytes(root) <= 65_536
        assert answers[-1].json()["code"] == "ingest_full"
        assert "Retry-After" in answers[-1].headers
        assert httpx.post(f"{service.url}/search", json={"query": "owls"}).status_code == 200


def test_who_waits_for_a_write_holds_nothing(toy_model: Path, tmp_path: Path) -> None:
    """Without a `glow ingest` nothing ever gets visible: more waiting writes than the service works on at once change nothing."""
    flags = (*KEY_FLAGS, "--max-in-flight", "2")
    root = made(toy_model, write(tmp_path / "first.jsonl", documents(30)), tmp_path / "index", index="flat")
    with serving(root.path, *flags) as service, httpx.Client(base_url=service.url, timeout=60) as client:

        def send(number: int) -> int:
            body = {"_id": f"w/{number}", "text": "a wombat"}
            while True:
                status = client.post("/documents?wait=visible&wait_s=5", json=body, headers=WRITE).status_code
                if status != 429:  # two at the very same moment
                    return status

        with ThreadPoolExecutor(8) as pool:
            writes = [pool.submit(send, number) for number in range(8)]
            until(lambda: len(list(read_accepted(root.path / INGEST_FOLDER, IngestState()))) == 8)
            statuses = [
                client.post("/search", json={"query": f"bees {each}"}).status_code for each in range(20)
            ]
            assert statuses == [200] * 20
            assert [each.result() for each in writes] == [202] * 8


def test_many_who_wait_hold_up_nobody(toy_model: Path, tmp_path: Path) -> None:
    """Sixty wait over a log of eleven megabytes, which nobody applies; others' searches take as long as before."""
    root = made(toy_model, write(tmp_path / "first.jsonl", documents(30)), tmp_path / "index", index="flat")
    flags = (*KEY_FLAGS, "--max-write-waiters", "60")
    large = {"documents": [{"_id": f"l/{each}", "text": "words " * 2_000} for each in range(90)]}
    with serving(root.path, *flags, "--workers", "1") as service:
        for _ in range(10):
            assert httpx.post(f"{service.url}/documents", json=large, headers=WRITE).status_code == 202
        quiet = _p99(service.url)
        limits = httpx.Limits(max_connections=100)
        over = threading.Event()

        def wait(number: int) -> int:
            url = f"{service.url}/documents?wait=visible&wait_s=600"
            body = {"_id": f"w/{number}", "text": "a wombat"}
            with suppress(httpx.TransportError):
                return waiting.post(url, json=body, headers=WRITE).status_code
            return 0 if over.is_set() else -1

        with httpx.Client(timeout=600, limits=limits) as waiting, ThreadPoolExecutor(60) as pool:
            writes = [pool.submit(wait, number) for number in range(60)]
            until(lambda: _accepted(root, "w/") == 60)
            answer = httpx.post(
                f"{service.url}/documents?wait=visible&wait_s=0.1",
                json={"_id": "m", "text": "x"},
                headers=WRITE,
            )
            assert (answer.json()["code"], answer.status_code, "Retry-After" in answer.headers) == (
                "overloaded",
                429,
                True,
            )
            before = log_bytes(root)
            refused = httpx.post(
                f"{service.url}/documents?wait=visible", json={"_id": "m", "text": "x"}, headers=WRITE
            )
            assert (refused.status_code, log_bytes(root)) == (429, before)  # nothing was written
            with_waiters = _p99(service.url)
            over.set()
            service.process.kill()
            assert {each.result() for each in writes} == {0}
    assert with_waiters < 3 * quiet + 0.02, (with_waiters, quiet)


def _accepted(root: IndexRoot, start: str) -> int:
    """Writes in the log whose document's id begins so."""
    log = b"".join(path.read_bytes() for path in (root.path / INGEST_FOLDER / "log").glob("*.log"))
    return log.count(f'"_id": "{start}'.encode())


def _p99(url: str) -> float:
    """Seconds of the slowest but one of a hundred searches."""
    taken = []
    with httpx.Client(base_url=url, timeout=60) as client:
        for number in range(100):
            began = time.perf_counter()
            assert client.post("/search", json={"query": f"owls {number}"}).status_code == 200
            taken.append(time.perf_counter() - began)
    return sorted(taken)[-2]


def test_visible_is_what_every_replica_serves(toy_model: Path, tmp_path: Path) -> None:
    """Two services share a root and a log elsewhere; the one that looks for versions seldom is waited for, once killed it is not."""
    root = made(toy_model, write(tmp_path / "first.jsonl", documents(30)), tmp_path / "index", index="flat")
    log = str(tmp_path / "log")
    flags = (*KEY_FLAGS, "--ingest-folder", log)
    command = [
        sys.executable,
        "-m",
        "glow",
        "ingest",
        "--index-root",
        str(root.path),
        "--model",
        str(toy_model),
    ]
    with (
        serving(root.path, *flags, "--poll-interval-s", "0.1") as fast,
        serving(root.path, *flags, "--poll-interval-s", "3") as slow,
        subprocess.Popen(
            [*command, "--poll-interval-s", "0.1", "--ingest-folder", log],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as ingest,
        httpx.Client(base_url=fast.url, timeout=60) as first,
        httpx.Client(base_url=slow.url, timeout=60) as second,
    ):
        for number in range(3):
            record = {"_id": f"n/{number}", "text": f"an ocelot in the snow, {number}"}
            answer = first.post("/documents?wait=visible&wait_s=60", json=record, headers=WRITE).json()
            assert answer["state"] == "visible"
            assert second.get(f"/documents/n/{number}").status_code == 200
        os.kill(slow.process.pid, signal.SIGKILL)
        record = {"_id": "last", "text": "an ocelot alone"}
        answer = first.post("/documents?wait=visible&wait_s=60", json=record, headers=WRITE).json()
        assert answer["state"] == "visible"
        assert not (root.path / INGEST_FOLDER).exists()
        ingest.terminate()
