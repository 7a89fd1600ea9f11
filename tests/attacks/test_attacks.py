"""What costs much is refused or bounded, others are answered meanwhile, and a worker that ends takes its own requests alone.

Nothing here depends on speed; `python -m tests.attacks` measures.
"""

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.attacks.harness import (
    KEYS,
    Body,
    Plain,
    Service,
    explain_batch,
    filter_batch,
    hostile,
    plain_batch,
    prefix_batch,
    rerank_search,
    serving,
)
from tests.made_index import made, write
from tests.until import until

PATIENT = ("--default-timeout-ms", "30000", "--max-timeout-ms", "60000")


@pytest.fixture(scope="module")
def service(rerank_index: Path) -> Iterator[Service]:
    flags = ("--workers", "2", "--rate-limit", "20", "--rate-burst", "200", *PATIENT)
    with serving(rerank_index, *flags, keys=True) as running:
        yield running


def send(service: Service, body: Body) -> httpx.Response:
    headers = {"X-API-Key": KEYS["plain"]}
    return httpx.post(f"{service.url}/search/batch", json=body, headers=headers, timeout=60)


def test_explanations_and_filters_are_bounded_over_the_whole_batch(service: Service) -> None:
    refused = [result["problem"]["errors"] for result in send(service, explain_batch()).json()["results"]]
    assert {error["pointer"] for errors in refused for error in errors} == {"/explain"}
    many = send(service, explain_batch(4, 20))
    assert (many.status_code, many.json()["errors"][0]["pointer"]) == (422, "/searches")
    long = send(service, filter_batch("lang"))
    assert (long.status_code, long.json()["code"]) == (422, "invalid_request")
    assert "61504 terms in total, expected at most 4000" in long.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/search/batch", explain_batch(3, 20)),
        ("/search/batch", plain_batch(16)),
        ("/search/batch", prefix_batch()),
        ("/search/batch", filter_batch("lang", 4)),
        ("/search", rerank_search()),
        ("/suggest?q=a&k=20", None),
    ],
)
def test_plain_searches_are_answered_beside_hostile_ones(
    service: Service, path: str, body: Body | None
) -> None:
    plain = Plain(service.url, pace_s=0.1)
    with hostile(service.url, path, body) as statuses:
        plain.ask(1.0)
    assert set(plain.statuses) == {200}
    assert 200 in statuses and set(statuses) <= {200, 429}
    assert "# TYPE glow_loop_lag_seconds gauge" in httpx.get(f"{service.url}/metrics", timeout=60).text


LONG, CHARS, SHORT = 55, 100_000, 60


def test_snippets_of_long_documents_cost_some_searches_without(toy_model: Path, tmp_path: Path) -> None:
    """It was 330 times. The goal is 10, and 9 were measured; beside other tests it was 13. By what the service says both took."""
    text = "Bees of the hive find home. " * (CHARS // 28)
    lines = [{"_id": f"long{number}", "title": "Bees", "text": f"{number} {text}"} for number in range(LONG)]
    lines += [
        {"_id": f"short{number}", "title": "A directory", "text": f"How to remove a directory {number}."}
        for number in range(SHORT)
    ]
    root = made(toy_model, write(tmp_path / "corpus.jsonl", lines), tmp_path / "index", index="flat")
    with serving(root.path, "--workers", "1") as service, httpx.Client(timeout=60) as client:

        def ask(number: int, **more: object) -> Body:
            body = {"query": f"bees of the hive find home {number}", "top_k": 50, "fields": [], **more}
            body |= {"timeout_ms": 30_000, "retriever": "lexical", "match": "any"}
            found: Body = client.post(f"{service.url}/search", json=body).json()
            return found

        without = min(ask(number)["took_ms"] for number in range(5))
        marked = [ask(number, highlight=True) for number in range(5)]
        assert min(each["took_ms"] for each in marked) <= 30 * without
        hits = [hit for hit in marked[0]["hits"] if hit["id"].startswith("long")]
        assert len(hits) > 40 and all("<em>" in hit["highlights"]["text"][0] for hit in hits)


def kill(service: Service, _: Path) -> None:
    os.kill(min(service.workers()), signal.SIGKILL)


def hang_up(service: Service, _: Path) -> None:
    """As a terminal that is closed."""
    service.process.send_signal(signal.SIGHUP)


def damage_and_kill(service: Service, root: Path) -> None:
    path = root / (root / "CURRENT").read_text(encoding="utf-8").strip() / "vectors.faiss"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    other = path.with_suffix(".new")
    other.write_bytes(bytes(content))
    other.replace(path)
    kill(service, root)


@pytest.mark.parametrize(
    ("harm", "new", "ready", "most_lost"), [(kill, 1, 2, 4), (hang_up, 2, 2, 0), (damage_and_kill, 1, 1, 4)]
)
def test_a_worker_that_starts_again_does_not_accept_before_it_can_answer(
    toy_index: Path,
    tmp_path: Path,
    harm: Callable[[Service, Path], None],
    new: int,
    ready: int,
    most_lost: int,
) -> None:
    """Lost is a connection that the killed worker had accepted."""
    root = Path(shutil.copytree(toy_index, tmp_path / "index"))
    with serving(root, "--workers", "2") as service, ThreadPoolExecutor(2) as pool:
        plains = [Plain(service.url, pace_s=0.02, is_new_connection=True) for _ in range(2)]
        asking = [pool.submit(plain.ask, 90.0) for plain in plains]
        before = service.workers()

        def is_over() -> bool:
            workers = service.workers()
            try:
                state = httpx.get(f"{service.url}/readyz", timeout=60)
            except httpx.TransportError:  # the killed worker had accepted it
                return False
            is_complete = len(workers) == 2 and len(workers - before) == new
            return is_complete and state.is_success and state.json()["workers"]["ready"] == ready

        try:
            until(lambda: all(plain.statuses for plain in plains))
            harm(service, root)
            until(is_over)
            time.sleep(2.0)  # for a new worker that accepts too early
            assert is_over()
        finally:
            for plain in plains:
                plain.ended.set()
        for each in asking:
            each.result(60)
    statuses = [status for plain in plains for status in plain.statuses]
    assert set(statuses) <= {0, 200} and statuses.count(0) <= most_lost


TENANTS = '[plain]\ncollections = ["default"]\n[mallory]\ncollections = ["default"]\nfilter = {field = "lang", eq = "none"}\n'


def test_keys_and_tenants_of_new_workers_are_those_of_the_start(toy_index: Path, tmp_path: Path) -> None:
    config, tenants = tmp_path / "glow.toml", tmp_path / "tenants.toml"
    tenants.write_text(TENANTS)
    names = ("plain", "mallory")
    keys = ",".join(f"{name}:{hashlib.sha256(KEYS[name].encode()).hexdigest()}" for name in names)
    config.write_text(f'api_keys = "{keys}"\ntenants = "{tenants}"\nworkers = 2\n')
    with serving(toy_index, "--config", str(config)) as service:

        def replies() -> set[tuple[str, int, int]]:
            """Key, status and hits over enough connections to meet every worker."""
            found = set()
            for name in names * 12:
                sent = {"json": {"query": "bees"}, "headers": {"X-API-Key": KEYS[name]}}
                answer = httpx.post(f"{service.url}/search", timeout=60, **sent)
                found.add((name, answer.status_code, len(answer.json().get("hits", ()))))
            return found

        before = replies()
        assert {status for _, status, _ in before} == {200}
        config.unlink()
        tenants.write_text("[nobody]\n")
        for pid in service.workers():
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: pid not in service.workers() and len(service.workers()) == 2)
        until(lambda: httpx.get(f"{service.url}/readyz", timeout=60).json()["workers"]["ready"] == 2)
        assert replies() == before
