"""Words of an index in its life: which fields have them, stems, idf, corrected typos; in a build, a delta, a compaction."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from glow.artifact import IndexRoot, write_artifact
from glow.cli import app
from glow.errors import FormatError
from glow.evaluation.corpus_index import DenseOptions, corpus_index
from glow.evaluation.task import Corpus
from glow.index import FUSION_FILE, Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import Model
from glow.search import analyze_query, rank_lexical, unknown_words
from glow_index_builder.versions.writer import derive
from tests.index_builder.conftest import LinesFile, Live, Run, write_lines
from tests.made_index import opened


def found(index: Index, text: str) -> dict[str, float]:
    ranked = rank_lexical(index, analyze_query(index, text).text, 5)
    ids = index[STORED_FIELDS].ids(ranked.rows.tolist())
    return dict(zip(ids, ranked.scores.tolist(), strict=True))


def ids(index: Index, text: str) -> list[str]:
    return list(found(index, text))


def test_a_fusion_that_cannot_be_meant_is_refused(root: IndexRoot) -> None:
    def write(folder: Path) -> None:
        (folder / FUSION_FILE).write_text('{"method": "magic"}')

    version = derive(root, root.current(), {}, {}, write)
    with pytest.raises(FormatError, match=r"fusion\.json.*magic"):
        Index.open(root.folder(version))


LAMP = {
    "_id": "SKU-00135",
    "title": "Desk lamp",
    "text": "It shines at night.",
    "url": "https://shop.example.org/lighting/33/index.html",
    "brand": "Lumora",
    "maker": {"town": ["Ulm"]},
    "remarks": "Delivered without a bulb, which has to be ordered separately from the dealer.",
    "sold": "2024-05-01",
    "checksum": "9f86d081884c7d659a2feaa0c55ad015",
    "stock": "17",
}
SHOP = [
    LAMP,
    {"_id": "17", "title": "Snakes", "text": "The python of the night is a snake and shines."},
    {"_id": "tech/postgres.md", "title": "Notes", "text": "A database.", "brand": "Snake"},
]
WEAK = ("sku-00135", "00135", "lumora", "lighting", "postgres", "tech", "ulm")
NOWHERE = ("17", "33", "shop", "example", "html", "md", "2024", "05", str(LAMP["checksum"]), "bulb")


@pytest.mark.parametrize("analyzer", ["english", "plain"])
def test_ids_paths_and_short_metadata_are_found_and_change_no_other_score(
    build: Run, live: Live, lines_file: LinesFile, analyzer: str
) -> None:
    source = lines_file(SHOP)
    assert build(source, "--analyzer", analyzer, "--no-text-field").exit_code == 0
    without = live()
    assert not any(found(without, word) for word in WEAK)
    assert build(source, "--analyzer", analyzer).exit_code == 0
    index = live()
    for word in WEAK:
        assert ids(index, word) == ["tech/postgres.md" if word in ("postgres", "tech") else "SKU-00135"]
        assert unknown_words(index, index.preprocessor.query(word)) == ()
        assert index.speller is not None and all(map(index.speller.knows, word.split("-")))
    assert not any(found(index, word) for word in NOWHERE)
    for text in ("night lamp", "python", "shines night database"):
        assert found(index, text) == found(without, text)
    assert index.preprocessor.terms.hash == without.preprocessor.terms.hash
    weak, strong = found(index, "snake")["tech/postgres.md"], found(index, "snake")["17"]
    assert 0 < weak < strong  # with the idf of the texts
    assert analyze_query(index, "lumoar").corrected == {"lumoar": "lumora"}


def test_a_field_of_ones_own_is_a_text(build: Run, live: Live, lines_file: LinesFile) -> None:
    chosen = ("--text-field", "remarks", "--text-field", "maker.town", "--no-text-field")
    assert build(lines_file(SHOP), *chosen).exit_code == 0
    index = live()
    assert ids(index, "bulbs of dealers") == ids(index, "ulm") == ["SKU-00135"]
    assert found(index, "lumora") == found(index, "postgres") == {}
    copy = {"_id": "1", "text": f"{LAMP['title']} {LAMP['text']} {LAMP['remarks']} Ulm"}
    assert build(lines_file([copy, *SHOP[1:]]), "--no-text-field").exit_code == 0
    assert [*found(live(), "bulb night").values()] == [*found(index, "bulb night").values()]


def test_a_delta_and_a_compaction_keep_the_rule(
    build: Run, run: Run, live: Live, lines_file: LinesFile, output: Path, toy_model: Path
) -> None:
    assert build(lines_file(SHOP), "--text-field", "remarks").exit_code == 0
    alone = found(live(), "lumora bulb")["SKU-00135"]
    added = lines_file([{**LAMP, "_id": "SKU-00136", "brand": "Lumora"}])
    done = run("upsert", "--input", added, "--model", toy_model, "--index-root", output, "--threads", 1)
    assert done.exit_code == 0, done.stderr
    delta = live()
    assert found(delta, "lumora bulb") == {"SKU-00135": alone, "SKU-00136": alone}
    assert ids(delta, "SKU-00136")[0] == "SKU-00136"
    assert run("delete", "--input", "-", "--index-root", output, stdin=b"SKU-00135\n").exit_code == 0
    delta = live()
    assert found(delta, "lumora bulb") == {"SKU-00136": alone}
    assert run("compact", "--index-root", output).exit_code == 0
    compacted = live()
    for text in ("sku", "00136", "lumora bulb", "lighting snakes"):
        assert found(compacted, text) == found(delta, text)
    header = json.loads((output / compacted.version / "impacts" / "impacts.json").read_bytes())
    assert header["fields"] == {"text": ["remarks"], "weak": True}


def test_a_text_field_has_to_be_metadata_of_an_index_with_words(build: Run, lines_file: LinesFile) -> None:
    for chosen in (("url",), ("_id",), ("brand", "--no-lexical")):
        done = build(lines_file(SHOP), "--text-field", *chosen)
        assert done.exit_code == 2 and f"--text-field {chosen[0]}" in done.stderr


def test_a_corpus_in_memory_scores_as_its_index_without_weak_words(
    build: Run, live: Live, lines_file: LinesFile, toy_model: Path, tmp_path: Path
) -> None:
    source = lines_file(SHOP)
    assert build(source, "--no-text-field").exit_code == 0
    shutil.copyfile(source, tmp_path / "corpus.jsonl")
    model = Model.open(toy_model)
    corpus = Corpus(tmp_path, model.preprocessor.schema.names)
    index, _ = corpus_index(model, corpus, DenseOptions(), has_words=True)
    for word in ("sku", "lumora", "night snake", "postgres"):
        words = index.preprocessor.pieces.words(word)
        answers = (each[POSTINGS].search(words, 3) for each in (index, live()))
        for one, other in zip(*answers, strict=True):
            np.testing.assert_array_equal(one, other)


GARDEN = [
    {"_id": "a", "text": "Directories are listed and searched."},
    {"_id": "b", "text": "The owl searches a garden."},
    {"_id": "c", "text": "Gardens need watering."},
]
TELESCOPE = {"_id": "d", "text": "A telescope magnifies; many telescopes magnify more."}


@pytest.fixture(scope="module")
def versions(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Index]:
    """The same documents as a base, as a delta over it, and compacted; never change them."""
    folder = tmp_path_factory.mktemp("stems")

    def after(*arguments: object, stdin: bytes | None = None) -> Index:
        given = [str(each) for each in (*arguments, "--index-root", folder / "index")]
        done = CliRunner().invoke(app, given, input=stdin)
        assert done.exit_code == 0, done.stderr
        return opened(IndexRoot(folder / "index"))

    base, added = write_lines(folder / "base.jsonl", GARDEN), write_lines(folder / "added.jsonl", [TELESCOPE])
    model = ("--model", toy_model, "--threads", 1)
    versions = {"base": after("build", "--input", base, *model, "--analyzer", "english")}
    after("upsert", "--input", added, *model)
    versions["delta"] = after("delete", "--input", "-", stdin=b"c\n")
    versions["compacted"] = after("compact")
    return versions


def test_forms_are_found_in_base_and_delta(versions: dict[str, Index]) -> None:
    assert ids(versions["base"], "directory") == ["a"] and ids(versions["base"], "garden") == ["b", "c"]
    for name in ("delta", "compacted"):
        index = versions[name]
        assert index.analyzer.name == "english" and "stems/terms.json" in index.manifest.files
        assert ids(index, "listing a directory") == ["a"]
        assert ids(index, "magnifying telescope") == ["d"]
        assert sorted(ids(index, "searching")) == ["a", "b"]
        assert ids(index, "gardening") == ["b"]  # c is gone
    assert found(versions["delta"], "telescopes search") == found(versions["compacted"], "telescopes search")


def test_slips_are_corrected_to_whole_words_of_documents_that_are_there(versions: dict[str, Index]) -> None:
    for name in ("delta", "compacted"):
        index = versions[name]
        assert analyze_query(index, "telescpoe").corrected == {"telescpoe": "telescope"}
        assert analyze_query(index, "direcotries").corrected == {"direcotries": "directories"}
        other_forms = analyze_query(index, "telescoped gardening searche")
        assert other_forms.corrected == {}
        # Its stem is known, and it is no form.
        assert analyze_query(index, "searchs").corrected == {"searchs": "searches"}
        assert index.speller is not None and not index.speller.knows("telescpoe")
    assert analyze_query(versions["base"], "wateirng").corrected == {"wateirng": "watering"}
    assert analyze_query(versions["compacted"], "wateirng").corrected == {}


def test_plain_words_have_no_stems_and_an_index_without_words_none(
    build: Run, live: Live, lines_file: LinesFile
) -> None:
    assert build(lines_file(GARDEN), "--analyzer", "plain", "--no-text-field").exit_code == 0
    index = live()
    assert not any(name.startswith("stems/") for name in index.manifest.files)
    assert ids(index, "directory") == []
    assert build(lines_file(GARDEN), "--no-lexical").exit_code == 0
    assert not live().holds(POSTINGS)
    assert not any(name.startswith("impacts/") for name in live().manifest.files)


def test_pieces_of_words_have_no_stems(
    run: Run, toy_model: Path, lines_file: LinesFile, output: Path, tmp_path: Path
) -> None:
    with write_artifact(tmp_path / "pieces", "model") as writer:
        shutil.copytree(toy_model, writer.folder, dirs_exist_ok=True)
        (writer.folder / "manifest.json").unlink()
        path = writer.folder / "weighting.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "unit": "piece"}))
    fixed = ("--model", tmp_path / "pieces", "--index-root", output, "--input", lines_file(GARDEN))
    done = run("build", *fixed, "--analyzer", "english")
    assert done.exit_code == 2 and "have no stems; use --analyzer plain" in done.stderr
    assert run("build", *fixed, "--no-lexical").exit_code == 0  # it has no use for an analyzer
