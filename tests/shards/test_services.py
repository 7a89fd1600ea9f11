"""Shards as services of their own behind a router, over real HTTP: equal answers, a killed shard, replicas, a swap under load."""

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.search import shard_of, shard_root
from glow_index_builder.deltas import UpsertOptions
from glow_index_builder.sharding import upsert_into_set
from tests.attacks.harness import Service, serving
from tests.ports import free_port
from tests.shards.conftest import answer, opened, stages, write
from tests.shards.test_equal import PLAIN, RICH, without_clock
from tests.slow_peer import SlowPeer

KEY = "a key of some length"
SHARD_FLAGS = ("--shard-key", KEY, "--warmup-queries", "0", "--no-access-log")


class Cluster:
    """Four shards, of which the first has two replicas, and a router, over a copy of a set; the last is behind a proxy."""

    def __init__(self, root: IndexRoot, stack: ExitStack) -> None:
        self.root = root
        self._stack = stack
        self.ports = [free_port() for _ in range(5)]
        self.shards: list[tuple[Service, AbstractContextManager[Service]]] = []
        for place in range(5):
            self.shards.append(self.start(place))
        self.last = stack.enter_context(SlowPeer(self.ports[4]))
        first, second, *others = (f"http://127.0.0.1:{port}" for port in (*self.ports[:4], self.last.port))
        addresses = ",".join([f"{first}|{second}", *others])
        flags = ("--shards", addresses, "--shard-key", KEY, "--workers", "1", "--cache-entries", "0")
        self.router = stack.enter_context(serving(root.path, *flags))
        self.http = stack.enter_context(httpx.Client(base_url=self.router.url, timeout=30))

    def start(self, place: int) -> tuple[Service, AbstractContextManager[Service]]:
        """Starts the service at a place: 0 and 1 are replicas of shard 0, and 2, 3, 4 the shards 1, 2, 3."""
        running = serving(shard_root(self.root.path, max(place - 1, 0)), *SHARD_FLAGS, port=self.ports[place])
        service = running.__enter__()
        self._stack.push(running)
        return service, running

    def kill(self, place: int) -> None:
        """Ends a service without a word."""
        process = self.shards[place][0].process
        process.send_signal(signal.SIGKILL)
        process.wait()

    def restart(self, place: int) -> None:
        """Starts it again where it was."""
        self.shards[place] = self.start(place)

    def search(self, body: dict[str, Any]) -> httpx.Response:
        """One search of the router."""
        return self.http.post("/search", json=body)


@pytest.fixture(scope="module")
def cluster(four: IndexRoot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("cluster") / "index"
    shutil.copytree(four.path, root)
    with ExitStack() as stack:
        yield Cluster(IndexRoot(root), stack)


def test_a_router_answers_as_one_index(cluster: Cluster, one: IndexRoot) -> None:
    whole = opened(one)
    for body in (*PLAIN[::3], *({"query": "how do bees find home", **more} for more in RICH)):
        found = cluster.search(body).json()
        assert found["degraded"] == []
        compared = {name: found[name] for name in ("query", "hits", "facets") if name in found}
        assert without_clock(compared, body) == json.loads(
            json.dumps(without_clock(answer(whole, body), body))
        )
    batch = {"searches": [{"query": "steam engines"}, {"query": "owls", "retriever": "lexical"}]}
    results = cluster.http.post("/search/batch", json=batch).json()["results"]
    assert [len(result["hits"]) for result in results] == [10, 10]
    assert cluster.http.get("/documents/d/77").json()["metadata"]["rare"] == "once"
    assert cluster.http.get("/documents/nobody").status_code == 404
    assert cluster.http.get("/info").json()["index"]["documents"] == 240


def test_a_shard_answers_only_who_has_the_key(cluster: Cluster) -> None:
    url = cluster.shards[2][0].url
    for path in ("open", "rank", "show", "document"):
        assert httpx.post(f"{url}/shard/{path}", json={}).status_code == 401
        wrong = httpx.post(f"{url}/shard/{path}", json={}, headers={"X-API-Key": "no key of anybody"})
        assert wrong.status_code == 403
        assert cluster.http.post(f"/shard/{path}", json={}).status_code == 404  # the router is no shard
        given = httpx.post(f"{url}/shard/{path}", json={}, headers={"X-API-Key": KEY})
        assert (given.status_code, given.json()["code"]) == (503, "artifact_format")
    gone = {"version": "20200101T000000.000000Z-aaaa", "candidates": 3}
    refused = httpx.post(f"{url}/shard/rank", json=gone, headers={"X-API-Key": KEY})
    assert (refused.status_code, refused.json()["code"]) == (409, "version_not_open")


def test_a_killed_shard_is_told_and_comes_back(cluster: Cluster) -> None:
    body = {"query": "how do bees find home", "top_k": 50}
    whole = cluster.search(body).json()
    cluster.kill(3)
    refused = cluster.search(body)
    assert (refused.status_code, refused.json()["code"]) == (503, "shard_unavailable")
    assert "shard 2" in refused.json()["detail"] and "Retry-After" in refused.headers
    partial = cluster.search({**body, "allow_partial": True}).json()
    assert partial["degraded"] == ["shards"]
    assert partial["index"]["missing_shards"] == [2]
    left = {hit["id"] for hit in partial["hits"]}
    lost = {hit["id"] for hit in whole["hits"]} - left
    assert len(left) == 50 and lost
    assert cluster.http.get(f"/documents/{min(lost)}").status_code == 503
    assert cluster.http.get(f"/documents/{min(left)}").status_code == 200
    assert "glow_shards_missing_total 2.0" in cluster.http.get("/metrics").text
    cluster.restart(3)
    again = _until_whole(cluster, body)
    assert again["hits"] == whole["hits"]
    assert again["index"] == whole["index"]


def test_a_slow_shard_is_late_and_nothing_else(cluster: Cluster) -> None:
    body = {"query": "how do bees find home", "top_k": 50}
    whole = _until_whole(cluster, body)
    open_before = cluster.last.connections
    with cluster.last.slow():
        late = cluster.search({**body, "timeout_ms": 1_000})
        assert (late.status_code, late.json()["code"]) == (503, "shard_unavailable")
        started = time.monotonic()
        with ThreadPoolExecutor(24) as pool:
            asked = [{**body, "timeout_ms": 1_000, "allow_partial": each % 2 == 1} for each in range(24)]
            answers = list(pool.map(cluster.search, asked))
        took_s = time.monotonic() - started
        for each, answer in zip(asked, answers, strict=True):
            if not each["allow_partial"]:
                assert (answer.status_code, answer.json()["code"]) == (503, "shard_unavailable")
                assert "shard 3" in answer.json()["detail"] and "in time" in answer.json()["detail"]
            else:
                found = answer.json()
                assert (found["degraded"], found["index"]["missing_shards"]) == (["shards"], [3])
                assert {hit["id"] for hit in found["hits"]} >= {
                    hit["id"] for hit in whole["hits"] if shard_of(hit["id"], 4) != 3
                }
        assert took_s < 2.0  # one of them waits for the shard
        assert cluster.http.get("/healthz").status_code == 200
        assert cluster.http.get("/readyz").status_code == 200  # as with a shard that is down
    again = cluster.search(body).json()
    assert (again["hits"], again["degraded"]) == (whole["hits"], [])
    started = time.monotonic()
    with ThreadPoolExecutor(12) as pool:  # no thread of the router is held any more
        found = [answer.json() for answer in pool.map(cluster.search, [body] * 24)]
    assert [each["degraded"] for each in found] == [[]] * 24 and time.monotonic() - started < 2.0
    _until(lambda: cluster.last.connections <= max(open_before, 12), 5.0)


def test_a_replica_stands_in(cluster: Cluster) -> None:
    cluster.kill(1)
    statuses = [cluster.search({"query": f"owls number {number}"}).status_code for number in range(20)]
    assert statuses == [200] * 20
    cluster.restart(1)
    cluster.kill(0)
    statuses = [cluster.search({"query": f"foxes number {number}"}).status_code for number in range(20)]
    # The one that came back must open the version first: it is asked to by the first refusal.
    assert statuses[-1] == 200
    cluster.restart(0)
    _until_whole(cluster, {"query": "owls"})


def test_a_swap_under_load_loses_and_mixes_nothing(cluster: Cluster, toy_model: Path, tmp_path: Path) -> None:
    _until_whole(cluster, {"query": "owls"})
    before = cluster.root.current()
    done, answers = threading.Event(), []

    def ask() -> None:
        with httpx.Client(base_url=cluster.router.url, timeout=30) as http:
            while not done.is_set():
                answers.append(http.post("/search", json={"query": "an ocelot in the snow", "top_k": 5}))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    _until(lambda: bool(answers))
    versions = [before]
    for number in range(3):
        records = [
            {"_id": f"new/{number}/{each}", "text": f"an ocelot in the snow, {each}"} for each in range(6)
        ]
        source = write(tmp_path / "new.jsonl", records)
        upsert_into_set(
            UpsertOptions(output=cluster.root.path, source=str(source), model=toy_model, threads=1), stages()
        )
        versions.append(cluster.root.current())
        _until(lambda: cluster.http.get("/info").json()["index"]["version"] == versions[-1])
    _until(lambda: answers[-1].json()["index"]["version"] == versions[-1])
    done.set()
    for thread in threads:
        thread.join()
    assert len(set(versions)) == 4
    assert {each.status_code for each in answers} == {200}, next(
        each.text for each in answers if each.status_code != 200
    )
    seen = {each.json()["index"]["version"] for each in answers}
    assert {before, versions[-1]} <= seen <= set(versions)
    for each in answers:
        found = each.json()
        place = versions.index(found["index"]["version"])
        new = {hit["id"].split("/")[1] for hit in found["hits"] if hit["id"].startswith("new/")}
        assert not found["degraded"]
        assert len({int(number) for number in new} - set(range(place))) == 0  # none of a later version
    last = cluster.search({"query": "an ocelot in the snow", "top_k": 18}).json()
    assert sum(hit["id"].startswith("new/") for hit in last["hits"]) == 18


def test_a_version_that_a_shard_cannot_open_is_refused(
    cluster: Cluster, toy_model: Path, tmp_path: Path
) -> None:
    live = cluster.http.get("/info").json()["index"]["version"]
    source = write(tmp_path / "more.jsonl", [{"_id": f"more/{each}", "text": "a lynx"} for each in range(8)])
    cluster.kill(4)
    options = UpsertOptions(output=cluster.root.path, source=str(source), model=toy_model, threads=1)
    upsert_into_set(options, stages())
    _until(lambda: "swap" in cluster.http.get("/readyz").json())
    refusal = cluster.http.get("/readyz").json()["swap"]
    assert refusal["code"] == "shard_unavailable" and "shard 3" in refusal["reason"]
    assert cluster.http.get("/info").json()["index"]["version"] == live
    cluster.restart(4)
    _until_whole(cluster, {"query": "a lynx"})


def _until(is_so: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


def _until_whole(cluster: Cluster, body: dict[str, Any]) -> dict[str, Any]:
    """The answer once every shard gives its part again."""
    _until(lambda: all(cluster.search(body).status_code == 200 for _ in range(4)))
    found: dict[str, Any] = cluster.search(body).json()
    return found
