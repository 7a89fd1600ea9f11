"""The hot swap over real HTTP: no request fails, none is answered from two versions, and the old one is freed."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow_service.search.run import SearchAnswer, SearchSession
from tests.service.swap.conftest import ADMIN, ADMIN_HASH, Serve, searching
from tests.until import until


def test_five_swaps_under_two_clients_fail_and_mix_no_answer(versions: Any, serve: Serve) -> None:
    names = ["b1", "a2", "b2", "a3", "b3"]
    for name in names:
        versions.add(name)
    with serve() as served:
        with searching(str(served.http.base_url), 2) as clients:
            for name in names:
                versions.publish(name)
                until(lambda name=name: all(name in client.versions[-1:] for client in clients))
        assert served.metric('glow_index_swaps_total{outcome="done"}') == 5
        assert served.metric("glow_index_load_seconds_count") == 5
        until(lambda: served.metric("glow_index_versions_open") == 1)


@contextmanager
def no_collector() -> Iterator[None]:
    """What is freed in this block is freed by its last reader."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def parts_of(index: Index) -> list[Any]:
    """Weak references to a version and to what holds its memory."""
    columns = index[COLUMNS].columns
    parts = [index, index.encoder, index[VECTORS], index[STORED_FIELDS], index[POSTINGS]]
    parts += [index.preprocessor.pieces, index.preprocessor.weigher, index[COLUMNS].masks, columns]
    assert all(part is not None for part in parts)
    return [weakref.ref(part) for part in parts if hasattr(type(part), "__weakref__")]


def held_files(folder: Path) -> list[str]:
    """Files of a folder that this process has open or mapped."""
    maps = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sorted({name for name in (*maps, *opened) if name.startswith(f"{folder}/")})


def use_everything(served: Any) -> None:
    """Searches that open and cache what a version can open and cache."""
    everything = {"filter": {"field": "lang", "eq": "en"}, "facets": [{"field": "lang"}]}
    everything |= {"highlight": True, "explain": {"leave_one_out": True}}
    for retriever in ("dense", "lexical", "hybrid"):
        found = served.search(retriever=retriever, **everything)
        assert found.status_code == 200, found.text
    assert served.search("").status_code == 422  # errors have tracebacks, which hold what their frames held
    assert served.http.get("/documents/toy/0").status_code == 200
    assert served.http.get("/documents/nope").status_code == 404
    texts = {"input": ["bees", "salmon"], "input_type": "document"}
    assert served.http.post("/v1/embeddings", json=texts).status_code == 200
    assert served.http.get("/readyz").status_code == served.http.get("/info").status_code == 200


@contextmanager
def slow_search(served: Any) -> Iterator[Callable[[], httpx.Response]]:
    """A search that has begun, and that ends when the function is called, which returns its answer."""
    begun, end, retrieve = threading.Event(), threading.Event(), SearchSession.retrieve

    def wait(session: SearchSession, encoded: Any) -> SearchAnswer:
        begun.set()
        end.wait(30)
        return retrieve(session, encoded)

    def finish() -> httpx.Response:
        end.set()
        return response.result()

    with ThreadPoolExecutor(1) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SearchSession, "retrieve", wait)
            response = pool.submit(served.search, "honey of the old version", retriever="lexical")
            assert begun.wait(30)
        yield finish
        end.set()


def test_the_old_version_is_freed_when_its_last_reader_leaves_and_not_before(
    versions: Any, serve: Serve, toy_model: Path
) -> None:
    versions.add_of_another_model("b1")
    with serve(document_model=str(toy_model)) as served:
        use_everything(served)
        with no_collector():
            parts = parts_of(served.service.resources.live())
            encoder = weakref.ref(served.service.resources.live_version().document_encoder)
            assert len(parts) > 5
            with slow_search(served) as finish:
                versions.publish("b1")
                until(lambda: served.live == "b1")
                assert served.search().json()["index"]["version"] == "b1"
                assert served.metric("glow_index_versions_open") == 2
                assert all(part() is not None for part in parts)
                assert held_files(versions.path / "a1")
                answer = finish().json()
            assert answer["index"]["version"] == "a1"
            assert all(hit["id"].startswith("toy/") for hit in answer["hits"])
            del answer
            until(lambda: not any(part() for part in parts))
            until(lambda: not held_files(versions.path / "a1"))
            assert encoder() is not None  # the same model hash: the document tower is kept
            until(lambda: served.metric("glow_index_versions_open") == 1)
            assert held_files(versions.path / "b1")


def test_a_version_that_is_kept_in_a_circle_is_collected_in_the_end(
    versions: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow_service.live.resources.COLLECT_AFTER_S", 0.1)
    with serve() as served, no_collector():
        live = served.service.resources.live()
        versions.publish("b1")
        until(lambda: served.live == "b1")
        circle: dict[str, Any] = {"index": live}
        circle["self"], gone = circle, weakref.ref(live)
        del circle, live
        until(lambda: gone() is None)


def test_a_version_of_the_same_model_takes_over_its_tower(versions: Any, serve: Serve) -> None:
    with serve() as served, no_collector():
        live = served.service.resources.live()
        tower, pieces, old = live.encoder, live.preprocessor.pieces, weakref.ref(live)
        dense = weakref.ref(live[VECTORS])
        del live
        versions.publish("b1")
        until(lambda: served.live == "b1")
        until(lambda: old() is dense() is None)
        assert served.service.resources.live().encoder is tower
        assert served.service.resources.live().preprocessor.pieces is pieces
        assert served.search().json()["index"]["version"] == "b1"


def test_swaps_of_two_workers_fail_nothing(versions: Any, start_server: Any, tmp_path: Path) -> None:
    names = ["b1", "a2", "b2", "a3"]
    for name in names:
        versions.add(name)
    flags = ("--index-root", str(versions.path), "--workers", "2", "--admin-key", ADMIN_HASH)
    with start_server(tmp_path, *flags) as server:
        seconds = []
        with searching(server.url, 2) as clients:
            for name in names:
                versions.publish(name)
                reloaded = httpx.post(f"{server.url}/admin/reload", headers=ADMIN, timeout=60)
                assert reloaded.json()["live"]["version"] == name
                assert reloaded.json()["workers"] == {"count": 2, "following": 2, "refusing": 0}
                seconds.append(reloaded.elapsed.total_seconds())
        assert min(seconds) < 10.0, "each time, it waited for the other worker in vain"
        assert [client.lost for client in clients] == [0, 0]
        pid = server.process.pid
        workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        server.process.kill()  # the workers end with their supervisor
        until(lambda: not any(Path(f"/proc/{each}/cmdline").exists() for each in workers))
