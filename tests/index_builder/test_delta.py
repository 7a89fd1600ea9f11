"""Upsert, delete, compact and export: what becomes of documents and of their order; kills are in tests/lifecycle."""

import gzip
import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot, write_artifact
from glow.errors import BuildError
from glow.index import FUSION_FILE, Fusion
from glow.index.columns import COLUMNS, value_ranks
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, SearchParams
from glow.records import Document
from glow_index_builder.versions.writer import derive
from glow_service.search.plan import SearchPlan
from glow_service.search.run import SearchSession
from tests.index_builder.conftest import LinesFile, Run, names, report_of
from tests.made_index import compacted, deleted, documents, made, opened, upserted, write
from tests.program import glow

BEES = {"_id": "new/bees", "title": "Bees", "text": "Bees of the volcano", "lang": "is", "year": 2031}


@pytest.fixture
def upsert(run: Run, root: IndexRoot, toy_model: Path, lines_file: LinesFile, tmp_path: Path) -> Run:
    """`upsert([documents and raw lines], options)`; the report lies in report.json."""
    fixed = ("--model", toy_model, "--index-root", root.path, "--threads", 1)
    fixed += ("--json", tmp_path / "report.json")
    return lambda lines, *options: run("upsert", "--input", lines_file(lines), *fixed, *options)


@pytest.fixture
def delete(run: Run, root: IndexRoot, tmp_path: Path) -> Run:
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
    own = {"delta.json", "tombstones.npy", "order.npy", "documents.sqlite", "vectors.faiss"}
    folders = ("columns/", "impacts/", "spelling/")
    assert added == {
        f"delta/{name}" for name in (*own, *(each for each in old.files if each.startswith(folders)))
    }


def test_a_delete_takes_ids_as_they_are_and_objects_and_counts_those_it_does_not_know(
    delete: Run, upsert: Run, root: IndexRoot, tmp_path: Path
) -> None:
    added = [{**BEES, "_id": name} for name in ("wsp", " wsp ", "first", "new/bees")]
    assert upsert(added).exit_code == 0
    lines = b'\xef\xbb\xbffirst\r\n wsp \r\ntoy/3\n {"_id": "new/bees", "text": "?"}\nnobody\ntoy/3\n\xff\n'
    done = delete(lines, "--max-reject-ratio", 0.5)
    assert done.exit_code == 0, done.stderr
    counts = report_of(tmp_path / "report.json")["counts"]
    assert (counts["deleted"], counts["unknown"], counts["repeated"], counts["rejects"]) == (4, 1, 1, 1)
    index = opened(root)
    documents = index[STORED_FIELDS]
    assert [
        name for name in ("wsp", " wsp ", "first", "new/bees", "toy/3") if documents.find(name) is not None
    ] == ["wsp"]
    assert documents.count == 50
    assert index.delta is not None and index.delta.segment.rows.documents == 1


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
    holding, waiting = threading.Event(), threading.Event()

    def hold() -> None:
        with other.locked():
            holding.set()
            assert waiting.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(10)
    threading.Timer(0.1, waiting.set).start()
    assert upsert([BEES], "--wait", 10).exit_code == 0
    holder.join()
    assert opened(root)[STORED_FIELDS].count == 51


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


def test_a_version_that_is_derived_keeps_the_delta(upsert: Run, root: IndexRoot, toy_model: Path) -> None:
    assert upsert([BEES]).exit_code == 0
    version = derive(root, root.current(), {}, {"tuning": {}}, lambda folder: None)
    root.publish(version)
    assert opened(root)[STORED_FIELDS].count == 51
    assert upsert([{**BEES, "_id": "new/2"}]).exit_code == 0
    assert opened(root)[STORED_FIELDS].count == 52


BASE = [
    {"_id": "a", "text": "Bees dance.", "day": "2024-03-01", "price": 3, "tags": ["x", "m"]},
    {"_id": "b", "text": "Owls hunt.", "day": "2024-01-01T10:00:00Z", "tags": ["q"]},
    {"_id": "c", "text": "Whales sing.", "price": 2**53 + 1},
]
ADDED = [
    {"_id": "b", "text": "Owls fly.", "day": "2024-01-01T12:00:00+03:00", "price": 2.5, "tags": ["n"]},
    {"_id": "d", "text": "Ants walk.", "day": "2025-01-01", "price": 2**53},
    {"_id": "e", "text": "Bats call."},
]
RANKED = (
    # field, whether the largest value counts, the ids in order
    ("day", False, ["b", "a", "d"]),
    ("day", True, ["b", "a", "d"]),
    ("price", False, ["b", "a", "d", "c"]),  # whole numbers that no float64 tells apart
    ("price", True, ["b", "a", "d", "c"]),
    ("tags", False, ["a", "b"]),  # a has m and x, b has n
    ("tags", True, ["b", "a"]),
)


def test_values_of_base_and_delta_are_ranked_together(toy_model: Path, output: Path, tmp_path: Path) -> None:
    root = made(toy_model, write(tmp_path / "base", BASE), output)
    upserted(root, toy_model, ADDED)
    delta = opened(root)
    compacted(root)
    for index in (delta, opened(root)):
        rows = {name: index[STORED_FIELDS].find(name) for name in "abcde"}
        places = np.array(list(rows.values()), np.int64)
        for field, is_largest, wanted in RANKED:
            ranks = value_ranks(index[COLUMNS].columns, field, places, largest=is_largest)
            ranked = sorted(
                (rank, name) for rank, name in zip(ranks.tolist(), rows, strict=True) if rank >= 0
            )
            assert [name for _, name in ranked] == wanted, (field, is_largest)
            assert len({rank for rank, _ in ranked}) == len(wanted)


def test_an_index_stays_of_its_kind_and_what_belongs_to_the_version_stays(
    toy_model: Path, tmp_path: Path
) -> None:
    """An index with a delta of one document and two tombstones, and a fusion of its own."""
    lines = [{"_id": f"d{row}", "title": f"bees {row}", "text": f"number {row * row}"} for row in range(300)]
    root = made(toy_model, write(tmp_path / "base", lines), tmp_path / "index", index="hnsw")
    fusion, gate = Fusion(method="rrf", k=7), {"gate": {"status": "passed"}}
    root.publish(derive(root, root.current(), {}, gate, lambda path: fusion.save(path / FUSION_FILE)))
    upserted(root, toy_model, [{"_id": "d7", "text": "a zebra"}])
    deleted(root, "d0")
    before = opened(root)
    assert before[VECTORS].kind == "hnsw" and before.delta is not None
    report = compacted(root)
    after = opened(root)
    assert report["index"]["kind"] == after[VECTORS].kind == "hnsw" and after.delta is None
    assert after.fusion == before.fusion == fusion
    assert after.manifest.hashes == before.manifest.hashes and after[STORED_FIELDS].count == 299
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


def test_an_index_may_lose_all_its_documents_and_get_others(
    toy_model: Path, toy_corpus: Path, root: IndexRoot
) -> None:
    def found(text: str) -> list[list[str]]:
        plans = (SearchPlan(text, 10, 0, 10, SearchParams(), by) for by in ("dense", "lexical", "hybrid"))
        answers = (SearchSession(opened(root), plan).run().found for plan in plans)
        return [[hit.id for hit in answer.hits] for answer in answers]

    deleted(root, *(json.loads(line)["_id"] for line in toy_corpus.read_bytes().splitlines()))
    assert opened(root)[STORED_FIELDS].count == 0 and found("bees") == [[], [], []]
    with pytest.raises(BuildError, match="no document is left"):
        compacted(root)
    upserted(root, toy_model, [{"_id": "toy/1", "title": "Ants again"}])
    assert found("ants") == [["toy/1"]] * 3


ODD = {
    "_id": " odd/\"é\u2028 ", "title": ["One", "Two\n"], "text": "An owl.", "lang": "is",
    "big": 2**63 - 1, "place": {"city": None, "at": [1.5, True, {"x": "y"}]}, "fields": 3,
}  # fmt: skip


@pytest.fixture
def changed(toy_model: Path, tmp_path: Path) -> IndexRoot:
    """41 documents, of which a delta added one, replaced one and deleted one."""
    made_root = made(toy_model, write(tmp_path / "first.jsonl", documents(41)), tmp_path / "index")
    upserted(made_root, toy_model, [ODD, {"_id": "d/7", "text": "Replaced."}])
    deleted(made_root, "d/9")
    return made_root


def held(root: IndexRoot) -> list[Document]:
    return sorted(opened(root)[STORED_FIELDS].scan(), key=lambda each: each.id)


def test_an_export_is_read_back_to_equal_documents(
    changed: IndexRoot, run: Run, toy_model: Path, tmp_path: Path
) -> None:
    given = ("export-documents", "--index-root", changed.path, "--out")
    done = run(*given, tmp_path / "all.jsonl")
    assert (done.exit_code, done.stdout) == (0, f"41 documents of {changed.current()}\n")
    assert held(made(toy_model, tmp_path / "all.jsonl", tmp_path / "again")) == held(changed)
    assert run(*given, tmp_path / "all.jsonl.gz").exit_code == 0
    lines = (tmp_path / "all.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "all.jsonl.gz").read_bytes()) == lines
    printed = glow(*given, "-")
    assert printed.stdout.encode() == lines and "41 documents of" in printed.stderr
    report = run(*given, tmp_path / "all.jsonl", "--json", "-")
    assert json.loads(report.stdout)["documents"] == 41 and "41 documents" in report.stderr
    first = run(*given, tmp_path / "first.jsonl", "--version", changed.history()[-1])
    assert first.exit_code == 0 and "41 documents" in first.stdout
    assert b'"d/9"' in (tmp_path / "first.jsonl").read_bytes() and b'"d/9"' not in lines


def test_an_export_to_nowhere_is_told(changed: IndexRoot, run: Run, tmp_path: Path) -> None:
    given = ("export-documents", "--index-root", changed.path)
    for more, words in (
        (("--out", tmp_path / "no" / "x"), "glow: error (disk_failed): "),
        (("--out", "-", "--json", "-"), "standard output takes one file"),
        (("--out", tmp_path / "x", "--version", "none"), "glow: error (artifact_not_found): "),
    ):
        done = run(*given, *more)
        assert done.exit_code != 0 and words in done.stderr, more
    assert "x" not in names(tmp_path)


def test_a_filter_deletes_what_it_matches(changed: IndexRoot, run: Run) -> None:
    given = ("delete", "--index-root", changed.path)
    year = '{"year": {"gte": 2010}}'
    wanted = {each.id for each in held(changed) if each.metadata.get("year", 0) < 2010}
    done = run(*given, "--filter", year)
    assert done.exit_code == 0 and f"{41 - len(wanted)} deleted; {len(wanted)} documents" in done.stdout
    assert {each.id for each in held(changed)} == wanted
    assert "nothing to change" in run(*given, "--filter", year).stdout
    for more, words in (
        ((), "give either --input FILE, or --filter JSON or --all"),
        (("--input", "-", "--all"), "give either --input FILE, or --filter JSON or --all"),
        (("--filter", "{year}"), "--filter is not JSON"),
        (("--filter", '{"nope": 1}'), "no field 'nope'"),
        (("--filter", '{"and": []}'), "matches every document"),
    ):
        refused = run(*given, *more)
        assert refused.exit_code == 2 and words in refused.stderr, more
    assert {each.id for each in held(changed)} == wanted
    # One is left, and then none.
    assert run(*given, "--filter", f'{{"not": {{"year": {min_year(changed)}}}}}').exit_code == 0
    assert "0 documents" in run(*given, "--all").stdout


def min_year(root: IndexRoot) -> int:
    return min(each.metadata["year"] for each in held(root) if "year" in each.metadata)
