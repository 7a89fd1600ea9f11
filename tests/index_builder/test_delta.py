"""Upsert, delete and compact: what becomes of documents, of their order, and of a kill in the middle."""

import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot, write_artifact
from glow.errors import BuildError
from glow.index import FUSION_FILE, Fusion, Index
from glow.index.columns import COLUMNS, value_ranks
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow_index_builder.versions.writer import derive
from tests.index_builder.conftest import LinesFile, Run, limited_disk, report_of
from tests.made_index import compacted, deleted, made, opened, upserted, write
from tests.program import answer_of

BEES = {"_id": "new/bees", "title": "Bees", "text": "Bees of the volcano", "lang": "is", "year": 2031}


@pytest.fixture
def root(toy_index: Path, tmp_path: Path) -> IndexRoot:
    """A root of its own with the toy index."""
    return IndexRoot(Path(shutil.copytree(toy_index, tmp_path / "toy")))


@pytest.fixture
def upsert(run: Run, root: IndexRoot, toy_model: Path, lines_file: LinesFile, tmp_path: Path) -> Run:
    """`upsert([documents and raw lines], options)`; the report lies in report.json."""
    fixed = ("--model", toy_model, "--index-root", root.path, "--threads", 1)
    fixed += ("--json", tmp_path / "report.json")
    return lambda lines, *options: run("upsert", "--input", lines_file(lines), *fixed, *options)


@pytest.fixture
def delete(run: Run, root: IndexRoot, tmp_path: Path) -> Run:
    """`delete(b"lines", options)`."""
    fixed = ("--input", "-", "--index-root", root.path, "--json", tmp_path / "report.json")
    return lambda lines, *options: run("delete", *fixed, *options, stdin=lines)


def test_an_upsert_adds_and_replaces_and_the_last_of_an_id_wins(
    upsert: Run, root: IndexRoot, tmp_path: Path
) -> None:
    base = root.current()
    first = {**BEES, "title": "first"}
    held = opened(root)[STORED_FIELDS].get("toy/1")
    same = {"_id": "toy/1", **{name: list(found) for name, found in held.fields.items()}, **held.metadata}
    done = upsert(
        [first, {"_id": "toy/0", "text": "other"}, b"{not json", BEES, same], "--max-reject-ratio", 0.3
    )
    assert done.exit_code == 0, done.stderr
    assert "1 new, 1 replaced, 1 unchanged, 1 repeated, 1 rejects; 51 documents" in done.stdout
    index = opened(root)
    documents = index[STORED_FIELDS]
    assert documents.get("new/bees").fields == {"title": ("Bees",), "text": ("Bees of the volcano",)}
    assert documents.get("toy/0").metadata == {}
    assert documents.find("toy/1") == 1 and documents.count == 51
    found = report_of(tmp_path / "report.json")
    assert found["counts"] == {
        "new": 1, "replaced": 1, "unchanged": 1, "deleted": 0, "unknown": 0, "documents": 51, "rejects": 1, "repeated": 1,
        "encoded": 2, "reused": 0,
    }  # fmt: skip
    assert found["delta"] == {"documents": 2, "tombstones": 1, "share": 0.06, "most": 1000}
    assert (found["status"], found["version"], found["base"]) == ("published", index.version, base)
    rejects = [json.loads(line) for line in (root.path / f"rejects-{index.version}.jsonl").open()]
    assert [(each["line"], each["reason"][:8]) for each in rejects] == [(3, "not JSON")]


def test_what_stays_is_linked_and_the_term_table_is_frozen(upsert: Run, root: IndexRoot) -> None:
    before = root.current()
    assert upsert([BEES]).exit_code == 0
    old, new = root.manifest(before), root.manifest(root.current())
    assert old.files.items() <= new.files.items() and old.hashes == new.hashes
    assert all((root.folder(old.name) / name).samefile(root.folder(new.name) / name) for name in old.files)
    added = new.files.keys() - old.files.keys()
    assert added == {
        "delta/delta.json", "delta/tombstones.npy", "delta/order.npy", "delta/documents.sqlite", "delta/vectors.faiss",
        *(name.replace("columns/", "delta/columns/") for name in old.files if name.startswith("columns/")),
        *(name.replace("impacts/", "delta/impacts/") for name in old.files if name.startswith("impacts/")),
        *(name.replace("spelling/", "delta/spelling/") for name in old.files if name.startswith("spelling/")),
    }  # fmt: skip


def test_ids_to_delete_are_taken_as_they_are(delete: Run, upsert: Run, root: IndexRoot) -> None:
    names = ("wsp", " wsp ", "first")
    assert upsert([{"_id": name, "title": "Bees", "text": "Bees fly home."} for name in names]).exit_code == 0
    assert delete(b"\xef\xbb\xbffirst\r\n wsp \r\n").exit_code == 0
    documents = opened(root)[STORED_FIELDS]
    assert [documents.find(name) is not None for name in names] == [True, False, False]


def test_a_delete_takes_ids_and_objects_and_counts_those_it_does_not_know(
    delete: Run, upsert: Run, root: IndexRoot, tmp_path: Path
) -> None:
    assert upsert([BEES]).exit_code == 0
    lines = b'toy/3\n {"_id": "new/bees", "text": "?"}\nnobody\ntoy/3\n\xff\n'
    done = delete(lines, "--max-reject-ratio", 0.5)
    assert done.exit_code == 0, done.stderr
    counts = report_of(tmp_path / "report.json")["counts"]
    assert (counts["deleted"], counts["unknown"], counts["repeated"], counts["rejects"]) == (2, 1, 1, 1)
    index = opened(root)
    documents = index[STORED_FIELDS]
    assert documents.count == 49 and documents.find("toy/3") is documents.find("new/bees") is None
    assert index.delta is not None and index.delta.segment.rows.documents == 0


def test_what_changes_nothing_makes_no_version(upsert: Run, delete: Run, run: Run, root: IndexRoot) -> None:
    before = root.versions()
    assert "nothing to change" in delete(b"nobody\n").stdout
    done = run("compact", "--index-root", root.path)
    assert done.exit_code == 0 and "has no delta: nothing to compact" in done.stdout
    assert upsert([BEES]).exit_code == 0
    assert "nothing to change" in upsert([BEES]).stdout
    assert len(root.versions()) == len(before) + 1


def test_a_delta_that_grows_too_large_is_told_and_refused(
    upsert: Run, delete: Run, run: Run, root: IndexRoot
) -> None:
    some = [{**BEES, "_id": f"new/{number}"} for number in range(3)]
    done = upsert(some, "--max-delta-documents", 4)
    assert done.exit_code == 0 and "3 documents and tombstones of at most 4; fold it in soon" in done.stdout
    before = root.current()
    done = delete(b"toy/1\ntoy/2\n", "--max-delta-documents", 4)
    assert done.exit_code == 2 and "at most 4 are allowed" in done.stderr and "compact" in done.stderr
    done = upsert([{**BEES, "_id": f"more/{number}"} for number in range(5)], "--max-delta-documents", 4)
    assert done.exit_code == 2 and "more than 4 different documents" in done.stderr
    assert root.current() == before
    assert run("compact", "--index-root", root.path).exit_code == 0
    assert delete(b"toy/1\ntoy/2\n", "--max-delta-documents", 4).exit_code == 0
    assert opened(root)[STORED_FIELDS].count == 51


def test_only_the_model_that_built_the_index_may_add_to_it(
    upsert: Run, toy_model: Path, tmp_path: Path
) -> None:
    with write_artifact(tmp_path / "other", "model") as writer:
        shutil.copytree(toy_model, writer.folder, dirs_exist_ok=True)
        (writer.folder / "manifest.json").unlink()
        (writer.folder / "vocab.txt").open("a").write("\nzebras\n")
    done = upsert([BEES], "--model", tmp_path / "other")
    assert done.exit_code == 3 and "did not build the live index" in done.stderr


def test_too_many_bad_lines_change_nothing(upsert: Run, root: IndexRoot) -> None:
    before = root.current()
    done = upsert([BEES, b"{", b"["])
    assert done.exit_code == 4 and "2 of 3 input lines are invalid" in done.stderr
    assert root.current() == before and len(root.versions()) == 1
    assert len(list(root.path.glob("rejects-*.jsonl"))) == 1


def test_a_root_without_a_live_version_is_refused(run: Run, tmp_path: Path, toy_model: Path) -> None:
    upsert = ("upsert", "--model", toy_model, "--input", "-")
    for command in (upsert, ("delete", "--input", "-"), ("compact",)):
        done = run(*command, "--index-root", tmp_path / "none", stdin=b"")
        assert done.exit_code == 3 and "no published index" in done.stderr
    assert not (tmp_path / "none").exists()


def test_two_at_once_wait_for_each_other_or_are_refused(upsert: Run, run: Run, root: IndexRoot) -> None:
    other = IndexRoot(root.path)
    with other.locked():
        done = upsert([BEES], "--wait", 0.1)
        assert done.exit_code == 4 and "is being changed by" in done.stderr
        assert run("compact", "--index-root", root.path, "--wait", 0.1).exit_code == 4
    held = threading.Event()

    def hold() -> None:
        with other.locked():
            held.set()
            time.sleep(0.2)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    assert upsert([BEES], "--wait", 10).exit_code == 0
    holder.join()
    assert opened(root)[STORED_FIELDS].count == 51


@pytest.mark.parametrize("size_bytes", [1 << 10, 1 << 13, 20_000])
def test_a_full_disk_leaves_the_live_version_and_the_command_can_be_run_again(
    run: Run, root: IndexRoot, lines_file: LinesFile, toy_model: Path, size_bytes: int
) -> None:
    some = [{**BEES, "_id": f"new/{number}", "text": f"bees {number} " * 300} for number in range(5)]
    fixed = ("--model", toy_model, "--index-root", root.path, "--threads", 1)
    command = ("upsert", "--input", lines_file(some), *fixed)
    base = root.current()
    with limited_disk(size_bytes):
        done = run(*command)
    assert done.exit_code == 4 and "the live index is unchanged" in done.stderr, done.stderr
    assert root.current() == base and root.versions() == [base]
    assert run(*command).exit_code == 0
    version = root.current()
    with limited_disk(size_bytes):
        done = run("compact", "--index-root", root.path)
    assert done.exit_code == 4 and "the live index is unchanged" in done.stderr, done.stderr
    assert root.current() == version
    left = {path.name for path in root.path.iterdir()}
    assert left == {".lock", "CURRENT", base, version}
    assert (
        run("compact", "--index-root", root.path).exit_code == 0 and opened(root)[STORED_FIELDS].count == 55
    )


def test_verify_and_publish_see_a_damaged_delta(upsert: Run, run: Run, root: IndexRoot) -> None:
    base = root.current()
    assert upsert([BEES]).exit_code == 0
    version = root.current()
    assert run("rollback", "--index-root", root.path).exit_code == 0 and root.current() == base
    for name in ("vectors.faiss", "documents.sqlite", "tombstones.npy"):
        path = root.folder(version) / "delta" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        for command in ("verify", "publish"):
            done = run(command, version, "--index-root", root.path)
            assert done.exit_code == 3 and f"delta/{name} is damaged" in done.stderr, command
        path.write_bytes(whole)
    assert run("publish", version, "--index-root", root.path).exit_code == 0


def test_a_rebuilt_index_forgets_the_delta_and_tune_keeps_it(
    upsert: Run, root: IndexRoot, toy_model: Path
) -> None:
    assert upsert([BEES]).exit_code == 0
    version = derive(root, root.current(), {}, {"tuning": {}}, lambda folder: None)
    root.publish(version)
    assert opened(root)[STORED_FIELDS].count == 51
    assert upsert([{**BEES, "_id": "new/2"}]).exit_code == 0
    assert opened(root)[STORED_FIELDS].count == 52


BASE = [
    {"_id": "a", "text": "Bees dance. They hum.", "day": "2024-03-01", "price": 3, "tags": ["x", "m"]},
    {"_id": "b", "text": "Owls hunt. They are quiet.", "day": "2024-01-01T10:00:00Z", "tags": ["q"]},
    {"_id": "c", "text": "Whales sing.", "price": 2**53 + 1},
]
ADDED = [
    {
        "_id": "b",
        "text": "Owls fly. They hoot.",
        "day": "2024-01-01T12:00:00+03:00",
        "price": 2.5,
        "tags": ["n"],
    },
    {"_id": "d", "text": "Ants walk. They carry.", "day": "2025-01-01", "price": 2**53},
    {"_id": "e", "text": "Bats call."},
]
SAME = ("c", "a", "b", "d", "e")
"""Ids in the order of the rows of both versions, as they are asked about."""


@pytest.fixture
def both(toy_model: Path, output: Path, tmp_path: Path) -> tuple[Index, Index]:
    """A base with a delta, and the same documents compacted."""
    root = made(toy_model, write(tmp_path / "base", BASE), output)
    upserted(root, toy_model, ADDED)
    delta = opened(root)
    compacted(root)
    return delta, opened(root)


def rows(index: Index) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([index[STORED_FIELDS].find(name) for name in SAME], np.int64)


RANKED = (
    ("day", False, ["b", "a", "d"]),
    ("day", True, ["b", "a", "d"]),
    ("price", False, ["b", "a", "d", "c"]),  # whole numbers that no float64 tells apart
    ("price", True, ["b", "a", "d", "c"]),
    ("tags", False, ["a", "b"]),  # a has m and x, b has n
    ("tags", True, ["b", "a"]),
)
"""Field, whether the largest value counts, and the ids in order."""


def test_values_of_base_and_delta_are_ranked_together(both: tuple[Index, Index]) -> None:
    for index in both:
        for field, is_largest, wanted in RANKED:
            ranks = value_ranks(index[COLUMNS].columns, field, rows(index), largest=is_largest)
            every = zip(ranks.tolist(), SAME, strict=True)
            ranked = sorted((rank, name) for rank, name in every if rank >= 0)
            assert [name for _, name in ranked] == wanted, (field, is_largest)
            assert len({rank for rank, _ in ranked}) == len(wanted)


COUNT = 300


def make(model: Path, folder: Path) -> IndexRoot:
    """An index with a delta of one document and two tombstones, and a fusion of its own."""
    numbers = range(COUNT)
    lines = [{"_id": f"d{row}", "title": f"bees {row}", "text": f"number {row * row}"} for row in numbers]
    root = made(model, write(folder / "base", lines), folder / "index", index="hnsw")
    fusion = Fusion(method="rrf", k=7)
    gate = {"gate": {"status": "passed"}}
    root.publish(derive(root, root.current(), {}, gate, lambda path: fusion.save(path / FUSION_FILE)))
    upserted(root, model, [{"_id": "d7", "text": "a zebra"}])
    deleted(root, "d0")
    return root


def test_an_index_stays_of_its_kind_and_what_belongs_to_the_version_stays(
    toy_model: Path, tmp_path: Path
) -> None:
    root = make(toy_model, tmp_path)
    before = opened(root)
    assert before[VECTORS].kind == "hnsw" and before.delta is not None
    report = compacted(root)
    after = opened(root)
    assert report["index"]["kind"] == after[VECTORS].kind == "hnsw" and after.delta is None
    assert after.fusion == before.fusion == Fusion(method="rrf", k=7)
    assert after.manifest.hashes == before.manifest.hashes and after[STORED_FIELDS].count == COUNT - 1
    assert "gate" not in after.manifest.parameters
    assert after.manifest.parents["version"]["name"] == before.version
    assert report_of(root.folder(after.version))["status"] == "compacted"
    query = after.encoder.encode([after.preprocessor.query("a zebra")])
    for index in (before, after):
        _, rows = index[VECTORS].search(query, 200, order=index.order)
        ids = {document.id for document in index[STORED_FIELDS].rows(rows[rows >= 0].tolist())}
        assert "d7" in ids and "d0" not in ids
    # Row 0 is gone: what was row 6 is row 5 now, and its vector is the same, to the bit.
    old, new = (before[VECTORS].score(query[0], np.array([6])), after[VECTORS].score(query[0], np.array([5])))
    assert old == new


def test_an_index_without_documents_is_not_compacted(toy_model: Path, tmp_path: Path) -> None:
    root = made(toy_model, write(tmp_path / "base", [{"_id": "d", "text": "bees"}]), tmp_path / "index")
    deleted(root, "d")
    with pytest.raises(BuildError, match="no document is left"):
        compacted(root)


def test_a_kill_at_any_step_leaves_the_old_version_or_the_new_one(
    toy_index: Path, toy_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.jsonl").write_text(
        '{"_id": "toy/0", "text": "other"}\n{"_id": "a/new", "text": "one"}\n'
    )
    (tmp_path / "ids").write_text("toy/1\na/new\n")
    states = answer_of("tests.index_builder.delta_kill_points", toy_index, toy_model, tmp_path)
    assert {state["command"] for state in states} == {"upsert", "delete", "compact"} and len(states) >= 18
    olds = news = 0
    for state in states:
        assert state["died"], state["moment"]
        found, before, after = state["found"], state["before"], state["after"]
        is_old = found["version"] == before["version"]
        expected = before if is_old else after
        assert (found["ids"], found["has_delta"]) == (expected["ids"], expected["has_delta"]), state["moment"]
        olds, news = olds + is_old, news + (not is_old)
        if again := state["again"]:
            assert (again["ids"], again["has_delta"]) == (after["ids"], after["has_delta"])
    assert olds > 9 and news >= 3
