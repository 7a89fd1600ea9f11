"""`glow export-documents`, whose lines a build reads back, and `glow delete --filter`."""

import gzip
import json
from pathlib import Path

import pytest

from glow.artifact import IndexRoot
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from tests.index_builder.conftest import Run, names
from tests.made_index import deleted, documents, made, opened, upserted, write
from tests.program import glow

ODD = {
    "_id": " odd/\"é\u2028 ", "title": ["One", "Two\n"], "text": "An owl.", "lang": "is",
    "big": 2**63 - 1, "place": {"city": None, "at": [1.5, True, {"x": "y"}]}, "fields": 3,
}  # fmt: skip


@pytest.fixture
def root(toy_model: Path, tmp_path: Path) -> IndexRoot:
    """41 documents, of which a delta added one, replaced one and deleted one."""
    made_root = made(toy_model, write(tmp_path / "first.jsonl", documents(41)), tmp_path / "index")
    upserted(made_root, toy_model, [ODD, {"_id": "d/7", "text": "Replaced."}])
    deleted(made_root, "d/9")
    return made_root


def held(root: IndexRoot) -> list[Document]:
    return sorted(opened(root)[STORED_FIELDS].scan(), key=lambda each: each.id)


def test_an_export_is_read_back_to_equal_documents(
    root: IndexRoot, run: Run, toy_model: Path, tmp_path: Path
) -> None:
    given = ("export-documents", "--index-root", root.path, "--out")
    done = run(*given, tmp_path / "all.jsonl")
    assert (done.exit_code, done.stdout) == (0, f"41 documents of {root.current()}\n")
    assert held(made(toy_model, tmp_path / "all.jsonl", tmp_path / "again")) == held(root)
    assert run(*given, tmp_path / "all.jsonl.gz").exit_code == 0
    lines = (tmp_path / "all.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "all.jsonl.gz").read_bytes()) == lines
    printed = glow(*given, "-")
    assert printed.stdout.encode() == lines and "41 documents of" in printed.stderr
    report = run(*given, tmp_path / "all.jsonl", "--json", "-")
    assert json.loads(report.stdout)["documents"] == 41 and "41 documents" in report.stderr
    first = run(*given, tmp_path / "first.jsonl", "--version", root.history()[-1])
    assert first.exit_code == 0 and "41 documents" in first.stdout
    assert b'"d/9"' in (tmp_path / "first.jsonl").read_bytes() and b'"d/9"' not in lines


def test_an_export_to_nowhere_is_told(root: IndexRoot, run: Run, tmp_path: Path) -> None:
    given = ("export-documents", "--index-root", root.path)
    for more, words in (
        (("--out", tmp_path / "no" / "x"), "glow: error (disk_failed): "),
        (("--out", "-", "--json", "-"), "standard output takes one file"),
        (("--out", tmp_path / "x", "--version", "none"), "glow: error (artifact_not_found): "),
    ):
        done = run(*given, *more)
        assert done.exit_code != 0 and words in done.stderr, more
    assert "x" not in names(tmp_path)


def test_a_filter_deletes_what_it_matches(root: IndexRoot, run: Run) -> None:
    given = ("delete", "--index-root", root.path)
    year = '{"year": {"gte": 2010}}'
    wanted = {each.id for each in held(root) if each.metadata.get("year", 0) < 2010}
    done = run(*given, "--filter", year)
    assert done.exit_code == 0 and f"{41 - len(wanted)} deleted; {len(wanted)} documents" in done.stdout
    assert {each.id for each in held(root)} == wanted
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
    assert {each.id for each in held(root)} == wanted
    # One is left, and then none.
    assert run(*given, "--filter", f'{{"not": {{"year": {min_year(root)}}}}}').exit_code == 0
    assert "0 documents" in run(*given, "--all").stdout


def min_year(root: IndexRoot) -> int:
    return min(each.metadata["year"] for each in held(root) if "year" in each.metadata)
