"""Versions whose rows lie in Milvus: built, changed, compacted, served, collected; and what is said where that cannot be."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import ConfigError, MismatchError, StoreError
from glow.index import Index, RowMask
from glow.index.milvus import STORE_FILE, StoreAccess, connect, read_store_header, require_version
from glow.index.stored_fields import STORED_FIELDS
from glow.search import rank_dense, rank_hybrid
from glow_index_builder.versions.gc import collect
from tests.asked import asked_of
from tests.made_index import compacted, deleted, made, opened, upserted
from tests.ports import free_port
from tests.stores.conftest import assert_alike

Root = Callable[[str], IndexRoot]
QUERIES = ("how do bees find home", "coffee beans", "owls hunt at night", "a zebra in the snow")


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
    new = [{"_id": "z", "text": "a zebra in the snow"}, {"_id": "toy/3", "text": "owls"}]
    found = []
    for name, store in (("file", None), ("milvus", lite)):
        root = made(toy_model, toy_corpus, tmp_path / name, store=store, passages=passages)
        seen = [answers(opened(root))]
        upserted(root, toy_model, new)
        deleted(root, "toy/0")
        seen.append(answers(opened(root)))
        assert compacted(root)["status"] == "compacted"
        seen.append(answers(opened(root)))
        assert (STORE_FILE in opened(root).manifest.files) is (store is not None)
        assert ("vectors.faiss" in opened(root).manifest.files) is (store is None)
        found.append(seen)
    assert found[0] == found[1]
    assert found[1][1] == found[1][2] != found[1][0]


def test_a_filter_changes_no_score(toy_model: Path, toy_corpus: Path, tmp_path: Path) -> None:
    lite = f"milvus://{tmp_path / 'vectors.db'}"
    index = opened(made(toy_model, toy_corpus, tmp_path / "index", store=lite))
    generator = np.random.default_rng(0)
    for text in QUERIES:
        query = asked_of(index, text)
        whole = rank_hybrid(index, query, 100)
        scores = dict(zip(whole.rows.tolist(), whole.scores.tolist(), strict=True))
        for share in (0.5, 0.1):
            kept = rank_hybrid(index, query, 100, allowed=RowMask(generator.random(50) < share))
            assert_alike([scores[row] for row in kept.rows.tolist()], kept.scores.tolist())


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
    assert answers(opened(root))


def test_what_cannot_be_is_told(toy_model: Path, toy_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        made(toy_model, toy_corpus, tmp_path / "index", store="localhost:19530")
    with pytest.raises(StoreError, match="does not respond"):
        made(toy_model, toy_corpus, tmp_path / "index", store=f"milvus://127.0.0.1:{free_port()}")
    assert not (tmp_path / "index").exists() or IndexRoot(tmp_path / "index").versions() == ()
    lite = f"milvus://{tmp_path / 'vectors.db'}"
    root = made(toy_model, toy_corpus, tmp_path / "index", store=lite)
    header = read_store_header(root.folder(root.current()))
    connect(lite).run(lambda client, _: client.drop_collection(header.collection))
    with pytest.raises(MismatchError, match="collection is missing"):
        opened(root)


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection = connect(f"milvus://{tmp_path / 'vectors.db'}")
    require_version(connection)
    for version in ("v2.3.5", "1.1", "unheard"):
        monkeypatch.setattr(connection, "run", lambda *_, version=version: version)
        with pytest.raises(ConfigError, match=rf"is Milvus {version}; expected 2\.4 or newer"):
            require_version(connection)


def test_access_is_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOW_STORE_TOKEN", "root:secret")
    monkeypatch.setenv("GLOW_STORE_TIMEOUT_MS", "250")
    access = StoreAccess.of_environment()
    assert (access.token, access.timeout_s) == ("root:secret", 0.25)
    assert json.dumps(repr(access)).count("secret") == 0
