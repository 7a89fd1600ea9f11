"""Versions whose vectors lie in Milvus: built, changed, compacted, served, collected; and what is said where that cannot be."""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import ConfigError, MismatchError, StoreError
from glow.index import Index, RowMask
from glow.index.milvus import STORE_FILE, StoreAccess, connect, read_store_header
from glow.index.stored_fields import STORED_FIELDS
from glow.search import rank_dense, rank_hybrid
from glow_index_builder.building import build
from glow_index_builder.deltas import CompactOptions, DeleteOptions, UpsertOptions, compact, delete, upsert
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions import collect
from tests.asked import asked_of
from tests.attacks.harness import Service, serving
from tests.ports import free_port
from tests.slow_peer import SlowPeer
from tests.stores.ray_cluster import RayCluster
from tests.stores.server import Milvus

Root = Callable[[str], IndexRoot]
QUERIES = ("how do bees find home", "coffee beans", "owls hunt at night", "a zebra in the snow")


def stages() -> Stages:
    return Stages(io.StringIO())


def made(output: Path, model: Path, corpus: Path, store: str | None, **options: Any) -> IndexRoot:
    build(BuildOptions(model=model, source=str(corpus), index_root=output, store=store, **options), stages())
    return IndexRoot(output)


def opened(root: IndexRoot) -> Index:
    return Index.open(root.folder(root.current()))


def answers(index: Index) -> list[tuple[list[str], list[str]]]:
    found = []
    for text in QUERIES:
        query = asked_of(index, text)
        rankings = rank_dense(index, query.vector, 5), rank_hybrid(index, query, 5)
        ids = [[hit.id for hit in index[STORED_FIELDS].rows(each.rows.tolist())] for each in rankings]
        found.append((ids[0], ids[1]))
    return found


@pytest.mark.parametrize("passages", [False, True])
def test_a_version_in_milvus_answers_and_changes_as_one_in_a_file(
    passages: bool, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    lite = f"milvus://{tmp_path / 'vectors.db'}"
    (tmp_path / "new").write_text(
        '{"_id": "z", "text": "a zebra in the snow"}\n{"_id": "toy/3", "text": "owls"}\n'
    )
    (tmp_path / "gone").write_text("toy/0\n")
    found = []
    for name, store in (("file", None), ("milvus", lite)):
        root = made(tmp_path / name, toy_model, toy_corpus, store, passages=passages)
        seen = [answers(opened(root))]
        upsert(UpsertOptions(index_root=root.path, source=str(tmp_path / "new"), model=toy_model), stages())
        delete(DeleteOptions(index_root=root.path, source=str(tmp_path / "gone")), stages())
        seen.append(answers(opened(root)))
        report = compact(CompactOptions(index_root=root.path), stages())
        seen.append(answers(opened(root)))
        assert report["status"] == "compacted"
        assert (STORE_FILE in opened(root).manifest.files) is (store is not None)
        assert ("vectors.faiss" in opened(root).manifest.files) is (store is None)
        found.append(seen)
    assert found[0] == found[1]
    assert found[1][1] == found[1][2] != found[1][0]


def test_a_filter_changes_no_score_but_in_its_last_digit(
    toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    index = opened(made(tmp_path / "index", toy_model, toy_corpus, f"milvus://{tmp_path / 'vectors.db'}"))
    generator = np.random.default_rng(0)
    for text in QUERIES:
        query = asked_of(index, text)
        whole = rank_hybrid(index, query, 100)
        scores = dict(zip(whole.rows.tolist(), whole.scores.tolist(), strict=True))
        for share in (0.5, 0.1):
            kept = rank_hybrid(index, query, 100, allowed=RowMask(generator.random(50) < share))
            assert kept.scores.tolist() == pytest.approx(
                [scores[row] for row in kept.rows.tolist()], abs=1e-6
            )


def test_gc_removes_the_collections_of_the_versions_that_it_removes(
    toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    lite = f"milvus://{tmp_path / 'vectors.db'}"
    root = made(tmp_path / "index", toy_model, toy_corpus, lite)
    made(tmp_path / "index", toy_model, toy_corpus, lite)  # the same vectors, and a collection of its own
    first, second = root.versions()
    names = [read_store_header(root.folder(version)).collection for version in (first, second)]
    assert names[0] != names[1]
    assert collect(root, keep=1, now=time.time() + 10**6).removed == (first,)
    listed = connect(lite).run(lambda client, _: client.list_collections())
    assert names[0] not in listed and names[1] in listed
    assert answers(opened(root))


def test_gc_unloads_what_is_not_served_and_keeps_what_a_delta_stands_on(
    milvus: Milvus, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    root = made(tmp_path / "index", toy_model, toy_corpus, milvus.address)
    made(tmp_path / "index", toy_model, toy_corpus, milvus.address)
    (tmp_path / "new").write_text('{"_id": "z", "text": "a zebra in the snow"}\n')
    upsert(UpsertOptions(index_root=root.path, source=str(tmp_path / "new"), model=toy_model), stages())
    oldest, base, live = root.versions()
    names = {each: read_store_header(root.folder(each)).collection for each in (oldest, base, live)}
    assert names[base] == names[live] != names[oldest]

    def state(version: str) -> str:
        found = connect(milvus.address).run(lambda client, _: client.get_load_state(names[version]))
        return str(found["state"])

    collect(root, keep=3)
    assert "Loaded" in state(oldest)  # somebody may still follow
    later = time.time() + 10**6
    collect(root, keep=3, now=later)
    assert ("NotLoad" in state(oldest), "Loaded" in state(live)) == (True, True)
    assert answers(Index.open(root.folder(oldest)))  # a rollback
    assert collect(root, keep=1, now=later).removed == (oldest, base)
    assert answers(opened(root))[0][0]
    listed = connect(milvus.address).run(lambda client, _: client.list_collections())
    assert names[live] in listed and names[oldest] not in listed


def test_what_cannot_be_is_told(toy_model: Path, toy_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        made(tmp_path / "index", toy_model, toy_corpus, "localhost:19530")
    with pytest.raises(StoreError, match="does not respond"):
        made(tmp_path / "index", toy_model, toy_corpus, f"milvus://127.0.0.1:{free_port()}")
    assert not (tmp_path / "index").exists() or IndexRoot(tmp_path / "index").versions() == ()
    lite = f"milvus://{tmp_path / 'vectors.db'}"
    root = made(tmp_path / "index", toy_model, toy_corpus, lite)
    header = read_store_header(root.folder(root.current()))
    connect(lite).run(lambda client, _: client.drop_collection(header.collection))
    with pytest.raises(MismatchError, match="collection is missing"):
        opened(root)


@pytest.fixture(scope="module")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milvus]:
    server = Milvus(tmp_path_factory.mktemp("milvus"))
    server.start()
    yield server
    server.remove()


def search(url: str, retriever: str, number: int, **more: Any) -> httpx.Response:
    body = {"query": f"{QUERIES[number % 4]} {number}", "retriever": retriever, "top_k": 3, **more}
    return httpx.post(f"{url}/search", json=body, timeout=30)


def serve(root: IndexRoot) -> AbstractContextManager[Service]:
    return serving(root.path, "--workers", "1", "--cache-entries", "0")


@pytest.mark.parametrize("swaps", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_the_service_swaps_under_load(
    swaps: int, milvus: Milvus, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    root = made(tmp_path / "index", toy_model, toy_corpus, milvus.address)
    with serve(root) as service:
        over, statuses = threading.Event(), []

        def ask() -> None:
            number = 0
            while not over.is_set():
                number += 1
                statuses.append(search(service.url, "dense", number).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(swaps):
            made(tmp_path / "index", toy_model, toy_corpus, milvus.address)
            live = root.current()
            until = time.monotonic() + 60
            while search(service.url, "dense", 0).json()["index"]["version"] != live:
                assert time.monotonic() < until
                time.sleep(0.1)
        over.set()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200} and len(statuses) > 20


@pytest.mark.parametrize("mode", ["trickle", "hang"])
def test_a_server_that_sends_slowly_is_late_and_nothing_else(
    milvus: Milvus, toy_model: Path, toy_corpus: Path, tmp_path: Path, mode: Literal["trickle", "hang"]
) -> None:
    with SlowPeer(int(milvus.address.rpartition(":")[2])) as peer:
        root = made(tmp_path / "index", toy_model, toy_corpus, f"milvus://127.0.0.1:{peer.port}")
        with serve(root) as service:
            right = search(service.url, "hybrid", 0).json()["hits"]
            with peer.slow(mode):
                late = search(service.url, "hybrid", 1, allow_partial=True)
                assert (late.status_code, late.json()["degraded"], bool(late.json()["hits"])) == (
                    200,
                    ["dense"],
                    True,
                )
                started = time.monotonic()
                with ThreadPoolExecutor(18) as pool:
                    kinds = ["dense", "hybrid", "lexical"] * 6
                    asked = [
                        pool.submit(search, service.url, kind, each, allow_partial=kind == "hybrid")
                        for each, kind in enumerate(kinds)
                    ]
                    found = {key: set[Any]() for key in kinds}
                    for kind, answer in zip(kinds, asked, strict=True):
                        body = answer.result().json()
                        found[kind] = found[kind] | {body.get("code") or tuple(body["degraded"])}
                assert found == {"dense": {"store_unavailable"}, "hybrid": {("dense",)}, "lexical": {()}}
                assert time.monotonic() - started < 2.5  # one of them waits for the server
                started = time.monotonic()
                unready = httpx.get(f"{service.url}/readyz", timeout=10)
                assert (unready.status_code, "search" in unready.json()["detail"]) == (503, True)
                assert time.monotonic() - started < 3.0
            again = search(service.url, "hybrid", 0)
            assert (again.status_code, again.json()["degraded"], again.json()["hits"]) == (200, [], right)
            time.sleep(0.6)  # an answer of /readyz counts for half a second
            assert httpx.get(f"{service.url}/readyz", timeout=10).status_code == 200
            started = time.monotonic()
            with ThreadPoolExecutor(8) as pool:  # no thread is held any more
                statuses = [
                    each.status_code
                    for each in pool.map(lambda n: search(service.url, "dense", n), range(40))
                ]
            assert set(statuses) == {200} and time.monotonic() - started < 4.0
            assert peer.connections <= 4


def test_without_its_server_a_search_is_a_503_or_answered_by_words(
    milvus: Milvus, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    root = made(tmp_path / "index", toy_model, toy_corpus, milvus.address)
    with serve(root) as service:
        assert search(service.url, "hybrid", 0).json()["degraded"] == []
        milvus.kill()
        refused = search(service.url, "dense", 1)
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        assert refused.headers["Retry-After"]
        assert search(service.url, "hybrid", 2).status_code == 503
        partly = search(service.url, "hybrid", 0, allow_partial=True)
        assert (partly.status_code, partly.json()["degraded"]) == (200, ["dense"])
        assert partly.json()["hits"][0]["scores"].keys() <= {"lexical", "learned"}
        assert search(service.url, "lexical", 0).json()["degraded"] == []
        assert "glow_dense_unavailable_total 3.0" in httpx.get(f"{service.url}/metrics", timeout=30).text


@pytest.mark.slow
def test_the_service_outlives_its_server(
    milvus: Milvus, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    milvus.start()
    root = made(tmp_path / "index", toy_model, toy_corpus, milvus.address)
    with serve(root) as service:
        before = search(service.url, "hybrid", 0).json()["hits"]
        milvus.kill()
        assert search(service.url, "hybrid", 0).status_code == 503
        milvus.start()
        until = time.monotonic() + 120
        while (again := search(service.url, "hybrid", 0)).status_code != 200:
            assert (again.status_code, time.monotonic() < until) == (503, True)
            time.sleep(0.5)
        assert [hit["id"] for hit in again.json()["hits"]] == [hit["id"] for hit in before]


def test_access_is_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOW_VECTOR_STORE_TOKEN", "root:secret")
    monkeypatch.setenv("GLOW_VECTOR_STORE_TIMEOUT_MS", "250")
    access = StoreAccess.of_environment()
    assert (access.token, access.timeout_s) == ("root:secret", 0.25)
    assert json.dumps(repr(access)).count("secret") == 0


def test_workers_of_ray_import_what_one_process_would(
    milvus: Milvus,
    ray_cluster: RayCluster,
    toy_model: Path,
    toy_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that there are several ranges.
    monkeypatch.setattr("glow_index_builder.encoding.ray_spread.RANGE_ROWS", 16)
    milvus.start()  # another test may have killed it
    given = {"store": milvus.address, "passages": True}
    plain = made(tmp_path / "plain", toy_model, toy_corpus, **given)
    ray_cluster.want_nodes(2)
    ray = {"runner": "ray", "workers": 2, "ray_address": ray_cluster.address}
    spread = made(tmp_path / "ray", toy_model, toy_corpus, **ray, **given)
    assert answers(opened(spread)) == answers(opened(plain))
    headers = [read_store_header(root.folder(root.current())) for root in (plain, spread)]
    assert headers[0].sample == headers[1].sample
    assert headers[0].vectors == headers[1].vectors > 16
