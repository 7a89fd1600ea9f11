"""Pairs from documents alone."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import typer.testing

from glow.collection import read_documents, read_queries
from glow.errors import ArtifactNotFoundError, ConfigError, InputError
from glow.records import Document
from glow.schema import FieldSchema
from glow.training.commands import synthesize_command
from glow.training.data import read_collection
from glow.training.synthesis import (
    KINDS,
    Candidate,
    KeywordCounts,
    SynthesisOptions,
    candidates,
    choose,
    synthesize,
    without,
)
from research.folders import read_records

SCHEMA = FieldSchema.preset("glow-default")
WHOLE = SynthesisOptions(drop=0.0, round_trip=0)
BEES = {
    "_id": "d",
    "url": "https://example.org/bees",
    "title": "Honey bees",
    "anchor": ["here", "how bees fly"],
    "clicked_queries": ["bees?"],
    "text": "Honey bees. Too short. Bees see the sun from far away. Bees smell the hive quite well. Yes.",
    "year": 1999,
}


def write_corpus(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


@pytest.fixture
def bees(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "bees.jsonl", BEES)


@pytest.fixture
def document(bees: Path) -> Document:
    (document,) = read_documents(bees, SCHEMA.names)
    return document


def test_the_result_is_a_data_folder_that_training_reads(toy_corpus: Path, tmp_path: Path) -> None:
    report = synthesize(toy_corpus, tmp_path, SCHEMA, WHOLE)
    collection = read_collection(tmp_path, "train", SCHEMA)
    assert collection.documents == list(read_documents(toy_corpus, SCHEMA.names))
    assert len(collection.pairs) == report["pairs"] >= 2 * len(collection.documents)
    kinds = [line["kind"] for line in read_records(tmp_path / "queries.jsonl")]
    assert Counter(kinds) == {kind: count for kind, count in report["kept"].items() if count}
    for (query, document), kind in zip(collection.pairs, kinds, strict=True):
        texts = " ".join(text for values in collection.documents[document].fields.values() for text in values)
        wanted = collection.queries[query]
        parts = wanted.split() if kind == "keywords" else [wanted]
        assert all(part.lower() in texts.lower() for part in parts)


def test_every_kind_is_made_by_its_rule(document: Document) -> None:
    """A lone `here` is no query, nor is a short sentence; a title that begins the body is one once."""
    found = candidates(document, KeywordCounts([document], SCHEMA), np.random.default_rng(0))
    assert [(one.kind, one.text) for one in found if one.kind != "keywords"] == [
        ("clicked", "bees?"),
        ("title", "Honey bees"),
        ("anchor", "how bees fly"),
        ("first", "Bees see the sun from far away."),
        ("cloze", "Bees smell the hive quite well."),
    ]
    body = "On the flight of bees . Bees see the sun from far away . Bees smell the hive quite well ."
    paper = Document("d", {"title": ("on the flight of bees .",), "text": (body,)})
    found = candidates(paper, KeywordCounts([paper], SCHEMA), np.random.default_rng(1))
    assert [one.kind for one in found] == ["title", "first", "keywords", "cloze"]
    assert found[1].text == "Bees see the sun from far away ."


def test_keywords_are_the_words_of_highest_tf_idf_in_reading_order() -> None:
    texts = (
        "The rare whale and the krill: a whale eats krill 19-99 19-99.",
        "The sea and the sun.",
        "The sun and a moon.",
    )
    documents = [Document(str(i), {"title": ("The sea",), "text": (text,)}) for i, text in enumerate(texts)]
    counts = KeywordCounts(documents, SCHEMA)
    assert counts.keywords(documents[0], 2) == "whale krill"
    assert counts.keywords(documents[0], 4) == "rare whale krill eats"
    assert counts.keywords(documents[2], 1) == "moon"
    assert counts.keywords(Document("e", {}), 3) == ""


def test_a_choice_keeps_the_first_and_takes_the_kinds_in_turn() -> None:
    found = [Candidate("title", "t"), Candidate("first", "f"), Candidate("keywords", "k")]
    found += [Candidate("cloze", str(number)) for number in range(20)]
    choices = [choose(found, 4, np.random.default_rng(seed)) for seed in range(20)]
    assert all(chosen[0].kind == "title" for chosen in choices)
    assert all({one.kind for one in chosen} == {"title", "first", "keywords", "cloze"} for chosen in choices)
    assert len({one.text for chosen in choices for one in chosen if one.kind == "cloze"}) > 5
    assert choose(found[:2], 4, np.random.default_rng(0)) == found[:2]
    assert choose([], 4, np.random.default_rng(0)) == []


def test_a_source_goes_wherever_it_stands_whole(document: Document) -> None:
    rest = without(document, "honey bees")
    assert rest.fields["title"] == ()
    assert rest.fields["text"][0].startswith("Too short.")
    assert without(document, "bees see the sun from far away").fields["text"] == (
        "Honey bees. Too short. Bees smell the hive quite well. Yes.",
    )
    assert without(document, "the sun").fields == document.fields
    asked = Document("d", {"clicked_queries": ("Bees? Why?", "Bees")})
    assert without(asked, "bees? why?").fields == {"clicked_queries": ("Bees",)}


def test_sources_are_dropped_at_the_asked_rate_and_half_the_words_stay(
    toy_corpus: Path, tmp_path: Path
) -> None:
    def words(document: Document) -> int:
        texts = (text for name, texts in document.fields.items() if name != "url" for text in texts)
        return sum(len(text.split()) for text in texts)

    whole, counts = list(read_documents(toy_corpus, SCHEMA.names)), []
    for drop in (0.0, 0.5, 1.0):
        out = tmp_path / str(drop)
        report = synthesize(toy_corpus, out, SCHEMA, SynthesisOptions(drop=drop, round_trip=0))
        counts.append(report["dropped_sources"])
        for before, document in zip(whole, read_documents(out / "corpus.jsonl", SCHEMA.names), strict=True):
            assert (document.id, document.metadata) == (before.id, before.metadata)
            assert words(before) / 2 <= words(document) <= words(before)
    assert counts[0] == 0
    assert 0.3 * counts[2] < counts[1] < 0.7 * counts[2]


def test_queries_of_documents_held_out_judge_and_are_not_trained_on(toy_corpus: Path, tmp_path: Path) -> None:
    """They are in the split `dev`; what they were made of is not in their documents' copies."""
    report = synthesize(toy_corpus, tmp_path, SCHEMA, SynthesisOptions(round_trip=0, drop=0.0, held_out=0.3))
    trained, judged = (read_collection(tmp_path, split, SCHEMA) for split in ("train", "dev"))
    documents = [{row for rows in each.relevant for row in rows} for each in (trained, judged)]
    assert len(documents[1]) > 5 and not documents[0] & documents[1]
    assert report["held_out"] == len(judged.queries) and report["pairs"] == len(trained.queries)
    whole = list(read_documents(toy_corpus, SCHEMA.names))
    assert all(whole[row] == trained.documents[row] for row in documents[0])
    assert any(whole[row] != judged.documents[row] for row in documents[1])


def test_only_the_kinds_asked_for_are_made(toy_corpus: Path, tmp_path: Path) -> None:
    options = SynthesisOptions(round_trip=0, kinds=("anchor", "keywords"))
    report = synthesize(toy_corpus, tmp_path, SCHEMA, options)
    assert {kind for kind, count in report["kept"].items() if count} == {"anchor", "keywords"}


def test_general_queries_are_filtered_out(toy_model: Path, toy_corpus: Path, tmp_path: Path) -> None:
    """Every document has the same anchor: without the filter each makes it a query, with it a few do."""
    documents = [{**line, "anchor": ["see also this"]} for line in read_records(toy_corpus)]
    corpus = write_corpus(tmp_path / "in.jsonl", *documents)
    general = []
    for rank in (0, 3):
        options = SynthesisOptions(max_queries=6, round_trip=rank)
        report = synthesize(corpus, tmp_path / str(rank), SCHEMA, options, toy_model)
        texts = [query.text for query in read_queries(tmp_path / str(rank) / "queries.jsonl")]
        general.append(texts.count("see also this"))
        assert sum(report["kept"].values()) == report["pairs"] == len(texts)
        assert sum(report["tried"].values()) >= report["pairs"] >= 100
    assert general[0] == 50
    assert general[1] <= 3


def test_the_same_seed_gives_the_same_pairs(toy_corpus: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        options = SynthesisOptions(max_queries=2, round_trip=0, seed=seed)
        synthesize(toy_corpus, tmp_path / name, SCHEMA, options)
    for file in ("queries.jsonl", "corpus.jsonl", "qrels/train.tsv", "synthesis.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert (tmp_path / "a" / "queries.jsonl").read_bytes() != (tmp_path / "c" / "queries.jsonl").read_bytes()


def test_a_finished_folder_is_kept_and_a_stale_or_unfinished_one_made_anew(
    bees: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = synthesize(bees, out, SCHEMA, WHOLE)
    made = (out / "queries.jsonl").read_bytes()
    (out / "queries.jsonl").write_text("{}\n", encoding="utf-8")  # shows whether it is written again
    assert synthesize(bees, out, SCHEMA, WHOLE) == first
    assert (out / "queries.jsonl").read_text(encoding="utf-8") == "{}\n"
    assert synthesize(bees, out, SCHEMA, SynthesisOptions(max_queries=1, round_trip=0))["pairs"] == 1
    (out / "synthesis.json").write_text("{", encoding="utf-8")
    assert synthesize(bees, out, SCHEMA, WHOLE) == first
    assert (out / "queries.jsonl").read_bytes() == made
    write_corpus(bees, BEES, {**BEES, "_id": "e"})
    assert synthesize(bees, out, SCHEMA, WHOLE)["documents"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"held_out": 1.0}, "held_out"),
        ({"drop": 1.5}, "drop"),
        ({"kinds": ("title", "headline")}, "found headline"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SynthesisOptions(**options)


def test_what_cannot_be_done_is_refused(bees: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        synthesize(bees, tmp_path / "out", SCHEMA)
    with pytest.raises(ArtifactNotFoundError, match="neither a model"):
        synthesize(bees, tmp_path / "out", SCHEMA, model=tmp_path)
    with pytest.raises(InputError, match="no document with text"):
        synthesize(write_corpus(tmp_path / "none.jsonl", {"_id": "1"}), tmp_path / "out", SCHEMA, WHOLE)
    assert not (tmp_path / "out").exists()


def test_the_command_writes_the_folder_and_its_report(
    toy_corpus: Path, toy_model: Path, tmp_path: Path
) -> None:
    app = typer.Typer()
    app.command("synthesize")(synthesize_command)
    runner = typer.testing.CliRunner()
    arguments = ["--corpus", str(toy_corpus), "--out", str(tmp_path / "out"), "--model", str(toy_model)]
    done = runner.invoke(app, [*arguments, "--threads", "1", "--max-queries", "3"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert set(report["kept"]) == set(KINDS)
    assert report["pairs"] == len(read_records(tmp_path / "out" / "queries.jsonl")) > 50
    assert report["made_from"]["options"]["max_queries"] == 3
    (tmp_path / "out" / "synthesis.json").unlink()
    refused = runner.invoke(app, [*arguments, "--threads", "1"])
    assert refused.exit_code == 2
    assert "may be real" in refused.output
