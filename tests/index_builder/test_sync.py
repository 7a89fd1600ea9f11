"""`glow sync`: the index equals a folder that changes, and encodes only what changed; `glow build` reuses vectors too."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from typer.testing import CliRunner

from glow.artifact import IndexRoot
from glow.cli import app
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from tests.artifact.conftest import flip
from tests.index_builder.conftest import Run, Spawn
from tests.made_index import documents, opened, write
from tests.until import until


def page(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"# A title\n\n{text}\n")


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    for number in range(30):
        name = f"{'old' if number % 2 else 'new'}/p{number}.md"
        page(tmp_path / "pages", name, f"Page {number} tells of bees.")
    return tmp_path / "pages"


def sync(source: Path, model: Path | None, *more: object, command: str = "sync", status: int = 0) -> Any:
    """Syncs the index beside its input; the report."""
    given = ("--input", source, "--index-root", source.with_name("index"), "--threads", 1, "--json", "-")
    arguments = (command, *given, *(() if model is None else ("--model", model)), *more)
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == status, done.stderr[-2_000:]
    return json.loads(done.stdout[: done.stdout.index("\n}\n") + 3])


def counted(report: Any) -> dict[str, int]:
    return {name: count for name, count in report["counts"].items() if count}


def vectors_of(index: Index) -> dict[str, np.ndarray]:
    stored = index[STORED_FIELDS]
    rows = {each.id: stored.find(each.id) for each in stored.scan()}
    return {name: index[VECTORS].vectors(np.array([row]))[0] for name, row in rows.items()}


def test_a_second_sync_encodes_what_changed(run: Run, pages: Path, toy_model: Path) -> None:
    first = sync(pages, toy_model)
    assert (first["counts"]["new"], first["counts"]["encoded"], first["counts"]["documents"]) == (30, 30, 30)
    for number in (2, 4, 6):
        page(pages, f"new/p{number}.md", "It tells of owls now.")
    page(pages, "new/one.md", "A page of foxes.")
    page(pages, "two.md", "A page of rivers.")
    for name in ("old/p1.md", "old/p3.md"):
        (pages / name).unlink()
    second = sync(pages, toy_model)
    assert counted(second) == {
        "new": 2, "changed": 3, "deleted": 2, "unchanged": 25, "documents": 30, "encoded": 5
    }  # fmt: skip
    root = IndexRoot(pages.with_name("index"))
    held = {each.id for each in opened(root)[STORED_FIELDS].scan()}
    assert held == {str(path.relative_to(pages)) for path in pages.rglob("*.md")}
    assert root.history() == [first["version"]]  # all of it is one version
    third = run("sync", "--input", pages, "--index-root", root.path, "--model", toy_model)
    assert "30 unchanged; 30 documents\nnothing to change: " in third.stdout
    assert root.current() == second["version"]


def test_what_changes_only_metadata_is_not_encoded(tmp_path: Path, toy_model: Path) -> None:
    records = documents(20)
    source = write(tmp_path / "shop.jsonl", records)
    sync(source, toy_model)
    before = vectors_of(opened(IndexRoot(tmp_path / "index")))
    records[3]["year"], records[4]["stock"] = 1999, 5
    report = sync(write(source, records), toy_model)
    assert (report["counts"]["changed"], report["counts"]["encoded"], report["counts"]["reused"]) == (2, 0, 2)
    index = opened(IndexRoot(tmp_path / "index"))
    assert index[STORED_FIELDS].get("d/3").metadata["year"] == 1999
    after = vectors_of(index)
    for name, vector in before.items():
        np.testing.assert_array_equal(after[name], vector)
    # Again, with the vectors of the delta, by another command.
    records[3]["year"] = 2001
    changes = write(tmp_path / "changes.jsonl", records[3:4])
    counts = sync(changes, toy_model, command="upsert")["counts"]
    assert (counts["replaced"], counts["encoded"], counts["reused"]) == (1, 0, 1)


def test_many_deletions_need_a_confirmation_and_a_rejected_line_deletes_nothing(
    tmp_path: Path, toy_model: Path
) -> None:
    records = documents(20)
    source = write(tmp_path / "shop.jsonl", records)
    live = sync(source, toy_model)["version"]
    root = IndexRoot(tmp_path / "index")
    failed = sync(write(source, records[:15]), toy_model, status=2)
    assert "lacks 5 of 20 documents" in failed["error"] and "--max-delete-ratio" in failed["error"]
    assert root.current() == live
    records[0]["title"] = 5  # a reject, whose id is known
    report = sync(write(source, records[:15]), toy_model, "--max-delete-ratio", 0.3)
    assert counted(report) == {"deleted": 5, "unchanged": 14, "kept": 1, "documents": 15, "rejects": 1}
    assert opened(root)[STORED_FIELDS].find("d/0") is not None
    for record in records[1:9]:
        record["title"] = 5
    failed = sync(write(source, records[:15]), toy_model, status=4)
    assert "9 of 15 input lines are invalid" in failed["error"]


def test_a_bad_cell_keeps_its_product_and_the_encoding_may_change(
    run: Run, tmp_path: Path, toy_model: Path
) -> None:
    source = tmp_path / "shop.csv"
    rows = [f"{number};Stühle {number};{number},50" for number in range(9)]
    source.write_bytes("\n".join(["id;title;price", *rows]).encode("windows-1252"))
    first = sync(source, toy_model, "--encoding", "windows-1252")
    assert first["counts"]["new"] == 9
    source.write_text("\n".join(["id;title;price", *rows[:-1], "8;Stühle 8;on request"]), encoding="utf-8")
    kept = {"unchanged": 8, "kept": 1, "rejects": 1, "documents": 9}
    assert counted(sync(source, toy_model)) == kept
    source.write_text("\n".join(["id;title;price", *rows[:-1], "8;Stühle 8"]), encoding="utf-8")
    assert counted(sync(source, toy_model)) == kept  # no id is known, as columns do not fit
    done = run("sync", "--input", tmp_path, "--index-root", tmp_path, "--model", toy_model)
    assert done.exit_code == 2 and "are one directory" in done.stderr


def test_a_large_difference_is_built_with_reused_vectors_and_the_options_of_the_live_version(
    tmp_path: Path,
) -> None:
    """With the default model, whose weights depend on no statistics."""
    records = documents(30)
    for record in records:
        record["name"] = record.pop("title")
    source = write(tmp_path / "shop.jsonl", records)
    sync(source, None, "--index", "hnsw", "--rename-field", "name=title", command="build")
    for record in records[:5]:
        record["text"] = "It tells of owls now."
    records[6]["text"], records[7]["year"] = 5, 1999
    report = sync(write(source, records), None, "--max-delta-documents", 3)
    assert {"changed": 6, "kept": 1, "encoded": 5, "reused": 25}.items() <= report["counts"].items()
    index = opened(IndexRoot(tmp_path / "index"))
    assert index[VECTORS].kind == "hnsw" and report["base"] == report["version"]
    assert index[STORED_FIELDS].get("d/1").fields["title"] == (records[1]["name"],)
    assert index[STORED_FIELDS].get("d/6").metadata["year"] == 2006
    # The same as vectors that are encoded anew.
    records[6]["text"] = " ".join(index[STORED_FIELDS].get("d/6").fields["text"])
    anew = sync(write(source, records), None, "--no-reuse", "--rename-field", "name=title", command="build")
    assert anew["counts"]["reused"] == 0
    other, mine = vectors_of(opened(IndexRoot(tmp_path / "index"))), vectors_of(index)
    assert other.keys() == mine.keys()
    for name, vector in mine.items():
        np.testing.assert_allclose(vector, other[name], rtol=2**-11, atol=1e-5)  # `hnsw` rounds to 16 bits


def test_a_build_reuses_no_vectors_if_weights_depend_on_other_statistics(
    tmp_path: Path, toy_model: Path
) -> None:
    records = documents(20)
    source = write(tmp_path / "shop.jsonl", records)
    sync(source, toy_model, command="build")
    root = IndexRoot(tmp_path / "index")
    first = root.folder(root.current())
    assert sync(source, toy_model, command="build")["counts"]["reused"] == 20  # nothing changed
    again = root.folder(root.current())
    assert (again / "vectors.faiss").read_bytes() == (first / "vectors.faiss").read_bytes()
    flip(again / "vectors.faiss", -3)
    assert sync(source, toy_model, command="build")["counts"]["reused"] == 0  # nothing of a damaged version
    records[3]["text"] = "It tells of many owls now."
    assert sync(write(source, records), toy_model, command="build")["counts"]["reused"] == 0


def test_a_killed_sync_leaves_the_live_version(spawn: Spawn, tmp_path: Path, toy_model: Path) -> None:
    records = documents(600)
    source = write(tmp_path / "shop.jsonl", records[:20])
    live = sync(source, toy_model)["version"]
    root = IndexRoot(tmp_path / "index")
    write(source, records)
    command = ("sync", "--input", source, "--index-root", root.path, "--model", toy_model)
    with spawn(*command) as child:
        until(lambda: b"compare" in child.stderr.readline())
        child.kill()
    assert root.current() == live and opened(root)[STORED_FIELDS].count == 20
    assert sync(source, toy_model)["counts"]["documents"] == 600


def test_watch_follows_a_folder_and_goes_on_after_a_failure(
    spawn: Spawn, pages: Path, toy_model: Path
) -> None:
    root, out = IndexRoot(pages.with_name("index")), pages.with_name("out.txt")
    command = ("sync", "--input", pages, "--index-root", root.path, "--model", toy_model, "--watch")
    with out.open("w") as file, spawn(*command, stdout=file, stderr=subprocess.DEVNULL) as child:
        try:
            until(lambda: out.read_text().count("published") == 1)
            gone = pages.rename(pages.with_name("away"))
            until(lambda: "waits for the next change" in out.read_text())
            gone.rename(pages)
            page(pages, "new/one.md", "A page of foxes.")
            until(lambda: out.read_text().count("published") == 2)
            assert "1 new, 30 unchanged; 31 documents" in out.read_text()
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()
    assert opened(root)[STORED_FIELDS].find("new/one.md") is not None


def test_watch_looks_after_1_5_s(pages: Path, toy_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("glow_index_builder.commands.delta.time", Mock(sleep=wait))
    sync(pages, toy_model, "--watch")
    wait.assert_called_once_with(1.5)
