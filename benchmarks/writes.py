"""Measures the time from sending documents to a service until searches find them, and the effect on other searches.

    python -m benchmarks.writes --corpus FILE.jsonl --work FOLDER [--documents 1000] [--batch 100]

Most documents are built into an index. The others are sent in batches to `glow serve`, while `glow ingest` runs and a
client searches.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np

PORT, KEY = 9356, "benchmark"


def main() -> None:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=100)
    options = parser.parse_args()
    lines = options.corpus.read_text(encoding="utf-8").splitlines()
    random.Random(0).shuffle(lines)  # noqa: S311 - which documents, no secret
    new = [json.loads(line) for line in lines[: options.documents]]
    options.work.mkdir(parents=True)
    (options.work / "old.jsonl").write_text("\n".join(lines[options.documents :]) + "\n", encoding="utf-8")
    root = str(options.work / "index")
    glow = [sys.executable, "-m", "glow"]
    build = [*glow, "build", "--input", str(options.work / "old.jsonl"), "--index-root", root]
    subprocess.run(build, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    environment = {**os.environ, "GLOW_WRITE_KEY": hashlib.sha256(KEY.encode()).hexdigest()}
    url = f"http://127.0.0.1:{PORT}"
    with ExitStack() as stack:
        for command in (
            ["serve", "--index-root", root, "--port", str(PORT)],
            ["ingest", "--index-root", root],
        ):
            process = subprocess.Popen(
                [*glow, *command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        http = stack.enter_context(httpx.Client(base_url=url, timeout=60, headers={"X-API-Key": KEY}))
        _wait(http)
        searches = stack.enter_context(_Searches(url))
        started, operation = time.perf_counter(), ""
        for place in range(0, len(new), options.batch):
            answer = http.post("/documents", json={"documents": new[place : place + options.batch]})
            operation = answer.raise_for_status().json()["operation"]
        accepted = time.perf_counter() - started
        while http.get(f"/operations/{operation}").json()["state"] != "visible":
            time.sleep(0.1)
        visible = time.perf_counter() - started
        searches.end()
        missing = sum(http.get(f"/documents/{each['_id']}").status_code != 200 for each in new)
    report = {
        "accepted_s": round(accepted, 2),
        "visible_s": round(visible, 1),
        "missing": missing,
        "searches": len(searches.statuses),
        "failed": sum(status != 200 for status in searches.statuses),
        "p50_ms": round(float(np.percentile(searches.ms, 50)), 1),
        "p99_ms": round(float(np.percentile(searches.ms, 99)), 1),
    }
    sys.stdout.write(json.dumps(report) + "\n")


class _Searches:
    """A client that searches meanwhile, twenty times a second."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._search)
        self.statuses: list[int] = []
        self.ms: list[float] = []

    def __enter__(self) -> "_Searches":
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.end()

    def end(self) -> None:
        """Waits for the last search."""
        self._over.set()
        self._thread.join()

    def _search(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._over.is_set():
                started = time.perf_counter()
                query = {"query": f"extract an archive {len(self.ms)}"}
                self.statuses.append(client.post("/search", json=query).status_code)
                self.ms.append((time.perf_counter() - started) * 1_000)
                time.sleep(0.05)


def _wait(http: httpx.Client) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            if http.get("/readyz").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit("the service did not get ready")


if __name__ == "__main__":
    main()
