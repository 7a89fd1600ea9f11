"""A store that is not there, refuses, dies, or loses what it had: what is said, and that no answer is wrong."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import ConfigError, MismatchError, StoreError
from glow.index import wanted_until
from glow.index.milvus import (
    MilvusVectors,
    StoreAccess,
    connect,
    drop_collection,
    read_store_header,
    require_version,
    write_vectors,
)
from glow.index.vectors import VECTORS
from glow_index_builder.versions.gc import collect
from tests.made_index import made, opened
from tests.ports import free_port
from tests.slow_peer import SlowPeer
from tests.stores.conftest import HASHES, PATIENT, Vectors
from tests.stores.server import TOKEN, Milvus

HASTY = StoreAccess(TOKEN, timeout_s=1.0)


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("http://127.0.0.1:19530", "is not an address"),
        ("milvus://", "names neither a host"),
        ("milvus:///vectors.sqlite", "neither a host nor a file that ends in .db"),
        ("milvus://root:secret@host:1", "is not an address"),  # credentials do not belong into a manifest
    ],
)
def test_an_address_that_is_none_is_refused(address: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        connect(address)


def test_a_server_that_is_not_there_is_told_within_seconds() -> None:
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"does not respond.*check that Milvus runs"):
        connect(f"milvus://127.0.0.1:{free_port()}", HASTY)
    assert time.monotonic() - started < 60


def test_access_is_of_the_environment_and_a_token_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOW_STORE_TOKEN", "root:secret")
    monkeypatch.setenv("GLOW_STORE_TIMEOUT_MS", "250")
    access = StoreAccess.of_environment()
    assert (access.token, access.timeout_s) == ("root:secret", 0.25)
    assert "secret" not in repr(access)
    monkeypatch.setenv("GLOW_STORE_TIMEOUT_MS", "soon")
    with pytest.raises(ConfigError, match="GLOW_STORE_TIMEOUT_MS is 'soon'"):
        StoreAccess.of_environment()


def test_wrong_credentials_and_databases_are_told_apart_from_no_server(milvus: Milvus) -> None:
    for token in ("", "root:wrong"):
        with pytest.raises(ConfigError, match=r"refuses the credentials.*GLOW_STORE_TOKEN"):
            connect(milvus.address, StoreAccess(token, 10.0)).run(lambda client, _: client.list_collections())
    with pytest.raises(ConfigError, match="no such database"):
        connect(f"{milvus.address}/absent", PATIENT).run(lambda client, _: client.list_collections())


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch, lite: str) -> None:
    connection = connect(lite)
    require_version(connection)
    for version in ("v2.3.5", "1.1", "unheard"):
        monkeypatch.setattr(connection, "run", lambda *_, version=version: version)
        with pytest.raises(ConfigError, match=rf"is Milvus {version}; expected 2\.4 or newer"):
            require_version(connection)


def imported(
    address: str, folder: Path, vectors: Vectors, prefix: str, access: StoreAccess = PATIENT
) -> MilvusVectors:
    header = write_vectors(connect(address, PATIENT), prefix, "flat", None, folder, vectors, HASHES)
    view = MilvusVectors(connect(address, access), header)
    view.check(HASHES)
    return view


def test_a_collection_dropped_under_us_is_told(
    milvus: Milvus, tmp_path: Path, vectors: Vectors, queries: Vectors
) -> None:
    view = imported(milvus.address, tmp_path, vectors[:300], "dropped")
    drop_collection(connect(milvus.address, PATIENT), read_store_header(tmp_path).collection)
    with pytest.raises(StoreError, match=r"collection is missing.*publish another version"):
        view.search(queries, 5)


def test_every_read_of_a_server_that_sends_slowly_ends_in_time(
    milvus: Milvus, tmp_path: Path, vectors: Vectors, queries: Vectors
) -> None:
    with SlowPeer(int(milvus.address.rpartition(":")[2])) as peer:
        view = imported(f"milvus://127.0.0.1:{peer.port}", tmp_path, vectors[:300], "slow", HASTY)
        rows = np.arange(50)
        expected = view.search(queries, 5)[1].tolist()
        for mode, read in (
            ("trickle", lambda: view.vectors(rows)),
            ("trickle", lambda: view.search(queries, 5)),
            ("hang", lambda: view.score(queries[0], rows)),
            ("hang", lambda: view.search(queries, 5)),
        ):
            with peer.slow(mode):
                started = time.monotonic()
                with pytest.raises(StoreError, match="does not respond"):
                    read()
                assert time.monotonic() - started < HASTY.timeout_s + 0.7
            assert view.search(queries, 5)[1].tolist() == expected  # at once


def test_a_search_that_is_wanted_for_a_short_time_waits_no_longer_and_harms_no_other(
    milvus: Milvus, tmp_path: Path, vectors: Vectors, queries: Vectors
) -> None:
    with SlowPeer(int(milvus.address.rpartition(":")[2])) as peer:
        view = imported(f"milvus://127.0.0.1:{peer.port}", tmp_path, vectors[:300], "short")
        view.search(queries, 5)
        with peer.slow("hang"):
            started = time.monotonic()
            with wanted_until(time.perf_counter() + 0.3), pytest.raises(StoreError, match="does not respond"):
                view.search(queries, 5)
            assert time.monotonic() - started < 0.5
            assert not view._collection.connection._has_failed


def test_gc_removes_the_collections_of_the_versions_that_it_removes(
    toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    lite = f"milvus://{tmp_path / 'vectors.db'}"
    root = made(toy_model, toy_corpus, tmp_path / "index", store=lite)
    made(toy_model, toy_corpus, tmp_path / "index", store=lite)  # the same vectors, in another collection
    first, second = root.versions()
    names = [read_store_header(root.folder(version)).collection for version in (first, second)]
    assert names[0] != names[1]
    assert collect(root, keep=1, now=time.time() + 10**6).removed == (first,)
    listed = connect(lite).run(lambda client, _: client.list_collections())
    assert names[0] not in listed and names[1] in listed
    assert opened(root)[VECTORS].has_vectors


def test_a_build_where_no_store_is_and_an_index_without_its_collection_are_refused(
    toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        made(toy_model, toy_corpus, tmp_path / "index", store="localhost:19530")
    with pytest.raises(StoreError, match="does not respond"):
        made(toy_model, toy_corpus, tmp_path / "index", store=f"milvus://127.0.0.1:{free_port()}")
    assert not IndexRoot(tmp_path / "index").versions()
    lite = f"milvus://{tmp_path / 'vectors.db'}"
    root = made(toy_model, toy_corpus, tmp_path / "index", store=lite)
    header = read_store_header(root.folder(root.current()))
    connect(lite).run(lambda client, _: client.drop_collection(header.collection))
    with pytest.raises(MismatchError, match="collection is missing"):
        opened(root)


KILLED = """
import sys, numpy as np
from pathlib import Path
from glow.index.milvus import connect, write
write.BATCH_ROWS, write.IMPORT_ROWS = 25, 100
vectors = np.load(sys.argv[2])
def told(rows):
    print(rows, flush=True)
server, folder = connect(sys.argv[1]), Path(sys.argv[3])
write.write_vectors(server, "killed", "flat", None, folder, vectors, {}, advance=told)
"""


def test_an_import_that_is_killed_goes_on_and_writes_every_row_once(
    milvus: Milvus, tmp_path: Path, vectors: Vectors, queries: Vectors
) -> None:
    vectors = vectors[:600]
    np.save(tmp_path / "vectors.npy", vectors)
    command = [sys.executable, "-c", KILLED, milvus.address, str(tmp_path / "vectors.npy"), str(tmp_path)]
    environment, starts = {**os.environ, "GLOW_STORE_TOKEN": TOKEN}, []
    for kill_after in (2, 2, 10_000):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            starts.append(int(process.stdout.readline()))
            for number, _ in enumerate(process.stdout, 1):
                if number == kill_after:
                    os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == (0 if kill_after == 10_000 else -signal.SIGKILL)
    assert starts[0] == 0 < starts[1] < starts[2] < len(vectors)  # each goes on behind the last note
    header = read_store_header(tmp_path)
    view = MilvusVectors(connect(milvus.address, PATIENT), header)
    view.check({})
    np.testing.assert_array_equal(view.vectors(np.arange(len(vectors))), vectors)
    rows = view.search(queries, 10)[1]
    assert rows.tolist() == np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :10].tolist()


@pytest.mark.slow
def test_a_server_killed_under_load_gives_errors_and_no_wrong_answer_and_comes_back(
    milvus: Milvus, tmp_path: Path, vectors: Vectors, queries: Vectors
) -> None:
    view = imported(milvus.address, tmp_path, vectors, "restarted", HASTY)  # as a service would
    expected = view.search(queries, 10)[1].tolist()
    over, answers, refused, wrong = threading.Event(), [0], [0], [0]

    def ask() -> None:
        while not over.is_set():
            try:
                right = view.search(queries, 10)[1].tolist() == expected
            except StoreError:
                refused[0] += 1
                time.sleep(0.02)
            else:
                answers[0] += right
                wrong[0] += not right

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    before = answers[0]
    milvus.kill()
    time.sleep(3.0)
    during, failed = answers[0], refused[0]
    milvus.start()
    until = time.monotonic() + 120
    while answers[0] < during + 20 and time.monotonic() < until:
        time.sleep(0.5)
    over.set()
    for thread in threads:
        thread.join()
    assert before > 0 and failed > 0 and answers[0] >= during + 20
    assert wrong == [0]
