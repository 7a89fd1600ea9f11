"""Words that lexical search finds and the encoder does not read: in builds, deltas and compactions."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from glow.evaluation.corpus_index import DenseOptions, corpus_index
from glow.evaluation.task import Corpus
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import Model
from glow.search import analyze_query, rank_lexical, unknown_words
from tests.index_builder.conftest import LinesFile, Live, Run

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
BASE = [
    LAMP,
    {"_id": "17", "title": "Snakes", "text": "The python of the night is a snake and shines."},
    {"_id": "tech/postgres.md", "title": "Notes", "text": "A database.", "brand": "Snake"},
]
WEAK = ("sku-00135", "00135", "lumora", "lighting", "postgres", "tech", "ulm")
NOWHERE = (
    "17",
    "33",
    "shop",
    "example",
    "html",
    "md",
    "2024",
    "05",
    "9f86d081884c7d659a2feaa0c55ad015",
    "bulb",
)


def found(index: Index, text: str) -> dict[str, float]:
    """Id -> score of lexical search, best first."""
    ranked = rank_lexical(index, analyze_query(index, text).text, 5)
    ids = index[STORED_FIELDS].ids(ranked.rows.tolist())
    return dict(zip(ids, ranked.scores.tolist(), strict=True))


@pytest.mark.parametrize("analyzer", ["english", "plain"])
def test_ids_paths_and_short_metadata_are_found_and_change_no_other_score(
    build: Run, live: Live, lines_file: LinesFile, analyzer: str
) -> None:
    source = lines_file(BASE)
    assert build(source, "--analyzer", analyzer, "--no-text-field").exit_code == 0
    without = live()
    assert not any(found(without, word) for word in WEAK)
    assert build(source, "--analyzer", analyzer).exit_code == 0
    index = live()
    for word in WEAK:
        assert list(found(index, word)) == [
            "tech/postgres.md" if word in ("postgres", "tech") else "SKU-00135"
        ]
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
    assert build(lines_file(BASE), *chosen).exit_code == 0
    index = live()
    assert list(found(index, "bulbs of dealers")) == list(found(index, "ulm")) == ["SKU-00135"]
    assert found(index, "lumora") == found(index, "postgres") == {}
    copy = {"_id": "1", "text": f"{LAMP['title']} {LAMP['text']} {LAMP['remarks']} Ulm"}
    assert build(lines_file([copy, *BASE[1:]]), "--no-text-field").exit_code == 0
    assert [*found(live(), "bulb night").values()] == [*found(index, "bulb night").values()]


def test_a_delta_a_compaction_and_a_killed_build_keep_the_rule(
    build: Run, run: Run, live: Live, lines_file: LinesFile, output: Path, toy_model: Path
) -> None:
    assert build(lines_file(BASE), "--text-field", "remarks").exit_code == 0
    alone = found(live(), "lumora bulb")["SKU-00135"]
    added = lines_file([{**LAMP, "_id": "SKU-00136", "brand": "Lumora"}])
    done = run("upsert", "--input", added, "--model", toy_model, "--index-root", output, "--threads", 1)
    assert done.exit_code == 0, done.stderr
    delta = live()
    assert found(delta, "lumora bulb") == {"SKU-00135": alone, "SKU-00136": alone}
    assert next(iter(found(delta, "SKU-00136"))) == "SKU-00136"
    assert run("delete", "--input", "-", "--index-root", output, stdin=b"SKU-00135\n").exit_code == 0
    assert found(live(), "lumora bulb") == {"SKU-00136": alone}
    delta = live()
    assert run("compact", "--index-root", output).exit_code == 0
    compacted = live()
    for text in ("sku", "00136", "lumora bulb", "lighting snakes"):
        assert found(compacted, text) == found(delta, text)
    header = json.loads((output / compacted.version / "impacts" / "impacts.json").read_bytes())
    assert header["fields"] == {"text": ["remarks"], "weak": True}


def test_a_text_field_has_to_be_metadata_of_an_index_with_words(build: Run, lines_file: LinesFile) -> None:
    for chosen in (("url",), ("_id",), ("brand", "--no-lexical")):
        done = build(lines_file(BASE), "--text-field", *chosen)
        assert done.exit_code == 2 and f"--text-field {chosen[0]}" in done.stderr


def test_a_corpus_in_memory_scores_as_its_index_without_weak_words(
    build: Run, live: Live, lines_file: LinesFile, toy_model: Path, tmp_path: Path
) -> None:
    source = lines_file(BASE)
    assert build(source, "--no-text-field").exit_code == 0
    shutil.copyfile(source, tmp_path / "corpus.jsonl")
    model = Model.open(toy_model)
    corpus = Corpus(tmp_path, model.preprocessor.schema.names)
    index, _ = corpus_index(model, corpus, DenseOptions(), has_words=True)
    for word in ("sku", "lumora", "night snake", "postgres"):
        words = index.preprocessor.pieces.words(word)
        for one, other in zip(
            index[POSTINGS].search(words, 3), live()[POSTINGS].search(words, 3), strict=True
        ):
            np.testing.assert_array_equal(one, other)
