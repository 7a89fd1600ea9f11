"""Snippets of long documents are in nobody's way: what they cost is bounded, charged, and done behind plain searches."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.attacks.harness import KEYS, ROOT, Plain, Service, serving

LONG, CHARS, SHORT = 55, 100_000, 60
ASKED = {"query": "bees of the hive find home", "top_k": 50, "fields": [], "timeout_ms": 30_000}
LIMITS = ("--rate-limit", "1", "--rate-burst", "6", "--cache-entries", "0")


@pytest.fixture(scope="module")
def index_root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    source, root = folder / "corpus.jsonl", folder / "index"
    text = "Bees of the hive find home. " * (CHARS // 28)
    lines = [{"_id": f"long{number}", "title": "Bees", "text": f"{number} {text}"} for number in range(LONG)]
    lines += [
        {"_id": f"short{number}", "title": "A directory", "text": f"How to remove a directory {number}."}
        for number in range(SHORT)
    ]
    source.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    command = ["-m", "index_builder", "build", "--threads", "1", "--model", str(toy_model)]
    files = ["--input", str(source), "--output", str(root)]
    subprocess.run([sys.executable, *command, *files], cwd=ROOT, check=True, capture_output=True)
    return root


@pytest.fixture(scope="module")
def service(index_root: Path) -> Iterator[Service]:
    with serving(index_root, "--workers", "2", "--default-timeout-ms", "30000") as running:
        yield running


def attack(url: str, ended: threading.Event, statuses: list[int]) -> None:
    """One connection that asks for snippets, each question another, with pauses."""
    with httpx.Client(timeout=60) as client:
        while not ended.is_set():
            body = {
                **ASKED,
                "query": f"bees of the hive find home {time.perf_counter_ns()}",
                "highlight": True,
            }
            statuses.append(client.post(f"{url}/search", json=body).status_code)
            ended.wait(0.5)


def test_others_hardly_notice_searches_for_snippets_of_long_documents(service: Service) -> None:
    """Their p99 was 1,800 ms."""
    body = {"retriever": "lexical", "top_k": 10}
    Plain(service.url, body=body).ask(1.0)
    alone, beside = Plain(service.url, body=body), Plain(service.url, body=body)
    alone.ask(4.0)
    ended, statuses = threading.Event(), list[int]()
    attackers = [threading.Thread(target=attack, args=(service.url, ended, statuses)) for _ in range(4)]
    for thread in attackers:
        thread.start()
    beside.ask(6.0)
    ended.set()
    for thread in attackers:
        thread.join()
    assert set(beside.statuses) == {200}
    assert len(statuses) > 8 and set(statuses) == {200}
    assert beside.summary()["p99_ms"] <= 3 * alone.summary()["p99_ms"] + 30, (
        alone.summary(),
        beside.summary(),
    )


def test_a_search_with_snippets_takes_at_most_ten_times_one_without(service: Service) -> None:
    """It was 400 times; both are measured by what the service says they took."""

    def took_ms(client: httpx.Client, **more: object) -> float:
        found = []
        for number in range(5):
            body = {**ASKED, "query": f"bees of the hive find home {number}", **more}
            found.append(client.post(f"{service.url}/search", json=body).json()["took_ms"])
        return min(found)

    with httpx.Client(timeout=60) as client:
        without = took_ms(client, retriever="lexical")
        assert took_ms(client, retriever="lexical", highlight=True) <= 10 * without


def test_every_hit_has_its_snippet_and_the_key_pays_for_what_was_read(index_root: Path) -> None:
    with serving(index_root, *LIMITS, keys=True) as service:
        headers = {"X-API-Key": KEYS["mallory"]}
        with httpx.Client(timeout=60, headers=headers) as client:
            plain = [client.post(f"{service.url}/search", json=ASKED).status_code for _ in range(3)]
            dear = client.post(f"{service.url}/search", json={**ASKED, "highlight": True})
            refused = client.post(f"{service.url}/search", json=ASKED)
    assert (plain, dear.status_code, refused.status_code) == ([200] * 3, 200, 429)
    assert (
        6 <= int(refused.headers["retry-after"]) <= 10
    )  # 4 searches and 10 for a million characters, of a burst of 6
    hits = dear.json()["hits"]
    assert len(hits) == 50
    for hit in hits:
        if hit["id"].startswith("long"):
            assert "<em>" in hit["highlights"]["text"][0]
