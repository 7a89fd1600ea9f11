"""A build with passages gives long documents a vector for each part, and everything else stays per document."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.runtime import Model
from glow.text.passages import PassageCutter, PassageOptions
from glow_index_builder.encoding.text_encoder import CPU_BATCH_TOKENS
from tests.index_builder.conftest import LinesFile, Live, Run

LONG = "Honey bees find their way home by the sun. They dance to show where food is. "


@pytest.fixture
def long_file(lines_file: LinesFile) -> Path:
    texts = (LONG * (row % 3 * 12) + f"Number {row}." for row in range(30))
    return lines_file(
        {"_id": f"d{row}", "title": f"bees {row}", "text": each} for row, each in enumerate(texts)
    )


def test_every_passage_has_the_vector_of_a_document_with_that_body(
    build: Run, toy_model: Path, long_file: Path, live: Live
) -> None:
    assert build(long_file, "--no-passages").exit_code == 0
    whole = live()
    done = build(long_file, "--passages")
    assert done.exit_code == 0, done.stderr
    index, model = live(), Model.open(toy_model)
    assert index.holds(PASSAGES) and not whole.holds(PASSAGES)
    assert index.manifest.hashes["terms"] == whole.manifest.hashes["terms"]
    assert list(index[STORED_FIELDS].scan()) == list(whole[STORED_FIELDS].scan())
    preprocessor = model.with_terms(index.preprocessor.terms)
    cutter = PassageCutter(preprocessor)
    passages = [part for document in index[STORED_FIELDS].scan() for part in cutter.passages(document)]
    assert 30 == index[STORED_FIELDS].count < len(passages) == len(index[PASSAGES]) == len(index[VECTORS])
    assert index.manifest.counts["passages"] == len(passages)
    encoder = model.encoder("document", batch_tokens=CPU_BATCH_TOKENS)
    expected = encoder.encode([preprocessor.document(passage) for passage in passages])
    stored = index[VECTORS].vectors(np.arange(len(passages)))
    np.testing.assert_allclose(stored, expected, atol=1e-5)


def test_short_documents_give_the_same_index_with_passages_as_without(
    build: Run, output: Path, toy_corpus: Path, lines_file: LinesFile
) -> None:
    short = []
    for line in toy_corpus.read_bytes().splitlines():
        document = json.loads(line)
        short.append(document | {"text": " ".join(str(document.get("text", "")).split()[:4])})
    file = lines_file(short)
    for options in ((), ("--passages",)):
        assert build(file, *options).exit_code == 0
    without, given = (IndexRoot(output).manifest(version).files for version in IndexRoot(output).versions())
    added = "passages.json documents.npy starts.npy ends.npy first.npy".split()
    assert given.keys() - without.keys() == {f"passages/{name}" for name in added}
    assert {name for name in without if without[name] != given[name]} == {"report.json"}


def test_the_report_tells_passages_and_what_they_cost(
    build: Run, long_file: Path, tmp_path: Path, live: Live
) -> None:
    options = ("--max-passages", 3, "--passage-field", "text")
    done = build(long_file, "--passages", *options, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.stderr
    report, index = json.loads((tmp_path / "r.json").read_text()), live()
    assert index.holds(PASSAGES)
    cutter = PassageCutter(index.preprocessor, PassageOptions("text", limit=3))
    cuts = [cutter.cut(document) for document in index[STORED_FIELDS].scan()]
    count = sum(len(cut.spans) for cut in cuts)
    milliseconds = report["passages"].pop("milliseconds_each")
    counts = {"count": count, "per_document": round(count / 30, 3), "most": 3, "whole_documents": 10}
    counts["cut_off_documents"] = sum(cut.left_out for cut in cuts)
    assert report["passages"] == {"field": "text", "limit": 3, **counts}
    assert report["passages"]["cut_off_documents"] > 0
    seconds = report["seconds"]
    took = sum(seconds[stage] for stage in ("passages", "encode", "index"))
    assert milliseconds == pytest.approx(1000 * took / count, abs=0.2)
    assert "text" not in report["truncated"]
    assert f"{count} passages are few enough" in report["index"]["why"]
    assert (
        f"20 of 30 documents are longer than the encoder reads (64 tokens): {count} passages\n" in done.stdout
    )
    assert report["recall"] == {"recall": 1.0, "depth": 10, "queries": 30, "seed": 0}
    assert (report["counts"]["documents"], report["options"]["passages"]) == (30, True)


def test_the_rule_and_the_option_give_the_same_passages_with_any_number_of_threads(
    build: Run, output: Path, long_file: Path
) -> None:
    for options in (("--passages", "--threads", 1), ("--threads", 3)):
        assert build(long_file, *options, "--encode-batch-documents", 7).exit_code == 0
    first, second = (IndexRoot(output).manifest(version).files for version in IndexRoot(output).versions())
    assert {name for name in first if first[name] != second[name]} == {"report.json"}


@pytest.mark.parametrize(
    "words, options, is_cut", [(194, (), True), (193, (), False), (194, ("--no-passages",), False)]
)
def test_a_build_splits_documents_if_enough_of_their_text_would_not_be_read(
    build: Run, lines_file: LinesFile, live: Live, words: int, options: tuple[str, ...], is_cut: bool
) -> None:
    """The model reads 64 tokens, beside [CLS] and five [SEP] 58 of the body: 30 % of 193.3."""
    done = build(lines_file([{"_id": "long", "text": "home " * words}]), *options)
    assert done.exit_code == 0, done.stderr
    index = live()
    assert index.holds(PASSAGES) == ("passages" in index.manifest.counts) == is_cut
    assert index.manifest.parameters["passages"] is is_cut
    end = ": 4 passages" if is_cut else " and cut, 70% of all text; --passages reads them whole"
    assert f"1 of 1 document is longer than the encoder reads (64 tokens){end}\n" in done.stdout


def test_a_large_build_tells_what_it_will_take(
    build: Run, long_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, is_told in ((30, False), (29, True)):
        monkeypatch.setattr("glow_index_builder.building.builder.MANY_DOCUMENTS", most)
        done = build(long_file, "--passages")
        told = re.search(
            r"(\d+) texts to encode: about 0\.0 hours at the rate of the first (\d+), and 225 MiB",
            done.stderr,
        )
        assert bool(told) == is_told
    assert told and told[1] == told[2] and int(told[1]) > 30


def test_a_field_that_cannot_be_cut_is_refused_before_the_input_is_read(build: Run, output: Path) -> None:
    done = build("-", "--passages", "--passage-field", "url", stdin=b"")
    assert done.exit_code == 2
    assert "no field 'url' that can be split" in done.stderr
    assert not output.exists() or not any(output.iterdir())
