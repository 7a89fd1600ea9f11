"""The life of a set: built on after a kill, changed, compacted, rolled back, verified, collected; and what is said where that cannot be."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow.errors import BuildError, ConfigError, GlowError, MismatchError, ShardError
from glow.search import SHARDS_FILE, Index, read_shard_set, shard_root
from glow_index_builder import building
from glow_index_builder.deltas import CompactOptions, DeleteOptions, UpsertOptions, compact, delete, upsert
from glow_index_builder.options import BuildOptions
from glow_index_builder.sharding import (
    build_set,
    collect_set,
    compact_set,
    delete_from_set,
    upsert_into_set,
    verify_set,
)
from glow_service.settings import Settings
from glow_service.shards import ShardConnections, open_set
from glow_service.shards.connections import parse_shards
from tests.ports import free_port
from tests.shards.conftest import answer, documents, made, opened, stages, write

BODIES = tuple(
    {"query": query, "retriever": retriever, "top_k": 12}
    for query in ("a zebra in the snow", "owls", "how do bees find home", "tea and rivers")
    for retriever in ("dense", "lexical", "hybrid")
)


@pytest.fixture
def pair(toy_model: Path, corpus: Path, tmp_path: Path) -> tuple[IndexRoot, IndexRoot]:
    """The same documents as an index and as three shards."""
    return tuple(
        made(toy_model, corpus, tmp_path / name, shards, index="flat")
        for name, shards in (("one", 1), ("set", 3))
    )  # type: ignore[return-value]


def answers(root: IndexRoot) -> list[Any]:
    index = opened(root)
    return [answer(index, body) for body in BODIES]


def test_changes_of_a_set_are_those_of_an_index(
    pair: tuple[IndexRoot, IndexRoot], toy_model: Path, tmp_path: Path
) -> None:
    one, shards = pair
    new = write(
        tmp_path / "new.jsonl",
        [
            {"_id": "z", "text": "a zebra in the snow", "lang": "en"},
            {"_id": "d/3", "text": "owls and zebras"},
            {"_id": "e"},
        ],
    )
    gone = tmp_path / "gone"
    gone.write_text('d/0\nd/1\nnobody\n{"_id": "d/9"}\n', encoding="utf-8")
    before = answers(shards)
    assert before == answers(one)
    for root, change, erase in ((one, upsert, delete), (shards, upsert_into_set, delete_from_set)):
        given = {"output": root.path, "max_reject_share": 0.5}
        made_change = change(UpsertOptions(source=str(new), model=toy_model, threads=1, **given), stages())
        erased = erase(DeleteOptions(source=str(gone), **given), stages())
        assert made_change.version is not None and made_change.rejects_file is not None
        counts = {
            name: made_change.report["counts"][name] for name in ("new", "replaced", "documents", "rejects")
        }
        assert counts == {"new": 1, "replaced": 1, "documents": 241, "rejects": 1}
        counts = {name: erased.report["counts"][name] for name in ("deleted", "unknown", "documents")}
        assert counts == {"deleted": 3, "unknown": 1, "documents": 238}
    changed = answers(shards)
    assert changed == answers(one) != before
    compact(CompactOptions(output=one.path), stages())
    assert compact_set(CompactOptions(output=shards.path), stages())["status"] == "published"
    assert answers(shards) == changed
    assert compact_set(CompactOptions(output=shards.path), stages())["status"] == "unchanged"
    verify_set(shards, shards.current())


def test_what_changes_nothing_makes_no_version(
    pair: tuple[IndexRoot, IndexRoot], toy_model: Path, tmp_path: Path
) -> None:
    shards, same = pair[1], write(tmp_path / "same.jsonl", documents()[:9])
    live = shards.current()
    result = upsert_into_set(
        UpsertOptions(output=shards.path, source=str(same), model=toy_model, threads=1), stages()
    )
    assert (result.version, result.report["counts"]["unchanged"], shards.current()) == (None, 9, live)


def test_a_rollback_is_where_the_next_change_begins(
    pair: tuple[IndexRoot, IndexRoot], toy_model: Path, tmp_path: Path
) -> None:
    shards = pair[1]
    before = answers(shards)
    for name in ("zebra", "ocelot"):
        source = write(tmp_path / f"{name}.jsonl", [{"_id": name, "text": f"the {name} in the snow"}])
        upsert_into_set(
            UpsertOptions(output=shards.path, source=str(source), model=toy_model, threads=1), stages()
        )
        if name == "zebra":
            assert answers(shards) != before
            shards.rollback()
            assert answers(shards) == before
    found = {hit["id"] for each in answers(shards) for hit in each["hits"]}
    assert "ocelot" in found and "zebra" not in found


def test_gc_removes_what_no_set_names(
    pair: tuple[IndexRoot, IndexRoot], toy_model: Path, tmp_path: Path
) -> None:
    shards = pair[1]
    for number in range(3):
        source = write(
            tmp_path / "new.jsonl", [{"_id": f"n/{number}/{each}", "text": "a lynx"} for each in range(9)]
        )
        upsert_into_set(
            UpsertOptions(output=shards.path, source=str(source), model=toy_model, threads=1), stages()
        )
    before = answers(shards)
    for path in (shards.path, *(shard_root(shards.path, shard) for shard in range(3))):
        for version in IndexRoot(path).versions():
            _age(path / version / "manifest.json")
    would = collect_set(shards, 2, dry_run=True)
    done = collect_set(shards, 2)
    assert would.removed == done.removed
    assert any(name.startswith("shards/") for name in done.removed)
    named = [read_shard_set(shards.folder(version)).shards for version in shards.versions()]
    assert len(named) == 2
    for shard in range(3):
        left = set(IndexRoot(shard_root(shards.path, shard)).versions())
        assert left == {records[shard].version for records in named}
    assert answers(shards) == before
    shards.rollback()
    verify_set(shards, shards.current())


def test_a_build_goes_on_where_it_was_killed(
    toy_model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BuildOptions(
        model=toy_model, source=str(corpus), output=tmp_path / "set", threads=1, shards=3, index="flat"
    )
    built: list[str] = []
    whole = building.build

    def build(given: BuildOptions, *more: Any) -> Any:
        if len(built) == 2:
            raise KeyboardInterrupt
        built.append(given.output.name)
        return whole(given, *more)

    monkeypatch.setattr("glow_index_builder.sharding.build.build", build)
    with pytest.raises(KeyboardInterrupt):
        build_set(options, stages())
    assert built == ["0", "1"]
    assert not (tmp_path / "set" / "CURRENT").exists()
    built[:] = [""]
    build_set(options, stages())
    assert built == ["", "2"]
    root = IndexRoot(tmp_path / "set")
    assert verify_set(root, root.current()).documents == 240
    assert not (root.path / ".work").exists()


def test_a_second_line_with_an_id_is_a_reject(toy_model: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "twice.jsonl", [*documents(40), *documents(2), {"_id": "no text"}])
    options = BuildOptions(model=toy_model, source=str(source), output=tmp_path / "set", threads=1, shards=2)
    result = build_set(options, stages())
    assert result.report["counts"]["documents"] == 40
    assert result.rejects_file is not None
    rejected = [json.loads(line) for line in result.rejects_file.read_text(encoding="utf-8").splitlines()]
    assert [(each["line"], each["id"]) for each in rejected] == [(41, "d/0"), (42, "d/1"), (43, "no text")]


def test_what_cannot_be_is_told(toy_model: Path, corpus: Path, tmp_path: Path, four: IndexRoot) -> None:
    few = write(tmp_path / "few.jsonl", documents(3))
    given = {"model": toy_model, "output": tmp_path / "set", "threads": 1}
    with pytest.raises(BuildError, match="give fewer --shards"):
        build_set(BuildOptions(source=str(few), shards=16, **given), stages())  # type: ignore[arg-type]
    for option, value in (
        ("store", "milvus:///x.db"),
        ("rerank", tmp_path),
        ("learned", True),
        ("gate", "live"),
    ):
        options = BuildOptions(source=str(corpus), shards=2, **given).model_copy(update={option: value})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"--{option}: not with --shards"):
            build_set(options, stages())
    folder = four.folder(four.current())
    with pytest.raises(MismatchError, match="is a set of shards"):
        Index.open(folder)
    nowhere = ShardConnections([[("127.0.0.1", free_port())]] * 3, "k" * 16)
    with pytest.raises(ConfigError, match="this set has 4 shards, the setting shards names 3"):
        open_set(folder, connections=nowhere)
    with pytest.raises(
        ShardError, match=r"not every shard could open its version: shard 0: .* does not answer"
    ):
        open_set(
            folder,
            like=opened(four),
            connections=ShardConnections([[("127.0.0.1", free_port())]] * 4, "k" * 16),
        )


def test_a_damaged_set_is_refused_by_name(pair: tuple[IndexRoot, IndexRoot]) -> None:
    shards = pair[1]
    version = shards.current()
    record = read_shard_set(shards.folder(version)).shards[1]
    damaged = shard_root(shards.path, 1) / record.version / "vectors.faiss"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for opens in (lambda: opened(shards), lambda: verify_set(shards, version)):
        with pytest.raises(GlowError, match=r"vectors\.faiss"):
            opens()
    damaged.write_bytes(whole)
    opened(shards)
    named = shards.folder(version) / SHARDS_FILE
    named.write_text(named.read_text(encoding="utf-8").replace(record.manifest, "0" * 64), encoding="utf-8")
    with pytest.raises(GlowError, match=r"shards\.json"):
        opened(shards)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shards": "localhost:8080", "shard_key": "k" * 16}, "expected addresses such as http://host:8080"),
        ({"shards": "http://a:1"}, "set shard_key here and at each of them"),
        ({"shard_key": "short"}, "has 5 characters, expected at least 16"),
        ({"shard_key": "k" * 16, "workers": 2}, "in one process"),
    ],
)
def test_settings_that_cannot_be_meant(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(index_root=Path("unused"), **values)


def test_addresses() -> None:
    assert parse_shards("http://a:8080|http://b:81/, http://c") == [[("a", 8080), ("b", 81)], [("c", 80)]]


def _age(path: Path) -> None:
    long_ago = time.time() - 10**6
    os.utime(path, (long_ago, long_ago))
