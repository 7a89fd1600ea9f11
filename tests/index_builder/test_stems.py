"""Stems in a version's life: a build, a delta, a compaction and a rebuild answer alike, and typos are corrected in each."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from glow.artifact import IndexRoot, write_artifact
from glow.cli import app
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.search import analyze_query, rank_lexical
from tests.index_builder.conftest import LinesFile, Live, Run, write_lines
from tests.made_index import opened

BASE = [
    {"_id": "a", "text": "Directories are listed and searched."},
    {"_id": "b", "text": "The owl searches a garden."},
    {"_id": "c", "text": "Gardens need watering."},
]
ADDED = {"_id": "d", "text": "A telescope magnifies; many telescopes magnify more."}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index root of `versions`."""
    return tmp_path_factory.mktemp("stems") / "index"


@pytest.fixture(scope="module")
def versions(toy_model: Path, kept: Path) -> dict[str, Index]:
    """The same documents as a base, as a delta over it, and compacted; never change them."""

    def after(*arguments: object, stdin: bytes | None = None) -> Index:
        given = [str(each) for each in (*arguments, "--index-root", kept)]
        done = CliRunner().invoke(app, given, input=stdin)
        assert done.exit_code == 0, done.stderr
        root = IndexRoot(kept)
        return opened(root)

    base, added = (kept.with_name(name) for name in ("base.jsonl", "added.jsonl"))
    write_lines(base, BASE)
    write_lines(added, [ADDED])
    model = ("--model", toy_model, "--threads", 1)
    found = {"base": after("build", "--input", base, *model, "--analyzer", "english")}
    after("upsert", "--input", added, *model)
    found["delta"] = after("delete", "--input", "-", stdin=b"c\n")
    found["compacted"] = after("compact")
    return found


def ids(index: Index, text: str) -> list[str]:
    ranked = rank_lexical(index, analyze_query(index, text).text, 5)
    return [document.id for document in index[STORED_FIELDS].rows(ranked.rows.tolist())]


def test_forms_are_found_in_base_and_delta(versions: dict[str, Index]) -> None:
    assert ids(versions["base"], "directory") == ["a"] and ids(versions["base"], "garden") == ["b", "c"]
    for name in ("delta", "compacted"):
        index = versions[name]
        assert index.analyzer.name == "english"
        assert ids(index, "listing a directory") == ["a"]
        assert ids(index, "magnifying telescope") == ["d"]
        assert sorted(ids(index, "searching")) == ["a", "b"]
        assert ids(index, "gardening") == ["b"]  # c is gone
    scores = [rank_lexical(versions[name], "telescopes search", 5).scores for name in ("delta", "compacted")]
    np.testing.assert_array_equal(*scores)


def test_slips_are_corrected_to_whole_words(versions: dict[str, Index]) -> None:
    for name in ("delta", "compacted"):
        index = versions[name]
        assert analyze_query(index, "telescpoe").corrected == {"telescpoe": "telescope"}
        assert analyze_query(index, "direcotries").corrected == {"direcotries": "directories"}
        assert (
            analyze_query(index, "telescoped gardening searche").corrected == {}
        )  # other forms are no typos
        assert analyze_query(index, "searchs").corrected == {
            "searchs": "searches"
        }  # its stem is known, and it is no form
        assert index.speller is not None and not index.speller.knows("telescpoe")


def test_words_of_documents_that_are_gone_correct_nothing(versions: dict[str, Index]) -> None:
    assert analyze_query(versions["base"], "wateirng").corrected == {"wateirng": "watering"}
    assert analyze_query(versions["compacted"], "wateirng").corrected == {}


def test_the_version_names_its_analyzer(versions: dict[str, Index], kept: Path) -> None:
    root = IndexRoot(kept)
    for index in versions.values():
        folder = root.folder(index.version)
        assert json.loads((folder / "impacts" / "impacts.json").read_bytes())["analyzer"] == "english"
        assert "stems/terms.json" in index.manifest.files
    report = json.loads((root.folder(versions["compacted"].version) / "report.json").read_bytes())
    assert report["lexical"]["analyzer"] == "english"


def test_a_build_of_plain_words_has_no_stems(build: Run, live: Live, lines_file: LinesFile) -> None:
    assert build(lines_file(BASE), "--analyzer", "plain", "--no-text-field").exit_code == 0
    index = live()
    assert not any(name.startswith("stems/") for name in index.manifest.files)
    assert ids(index, "directory") == []


def test_pieces_of_words_have_no_stems(
    run: Run, toy_model: Path, lines_file: LinesFile, output: Path, tmp_path: Path
) -> None:
    with write_artifact(tmp_path / "pieces", "model") as writer:
        shutil.copytree(toy_model, writer.folder, dirs_exist_ok=True)
        (writer.folder / "manifest.json").unlink()
        path = writer.folder / "weighting.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "unit": "piece"}))
    fixed = ("--model", tmp_path / "pieces", "--index-root", output, "--input", lines_file(BASE))
    done = run("build", *fixed, "--analyzer", "english")
    assert done.exit_code == 2 and "have no stems; use --analyzer plain" in done.stderr
    assert run("build", *fixed, "--no-lexical").exit_code == 0  # it has no use for an analyzer
