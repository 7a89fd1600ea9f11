"""Hard negatives: which documents are mined, what a file promises, and the command, with a model, BM25 alone, and a second round."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import typer.testing

from glow.errors import ConfigError, FormatError, MismatchError
from glow.evaluation.retrievers import LexicalRetriever
from glow.negatives import QueryNegatives, documents_hash, write_negatives
from glow.records import Query
from glow.schema import FieldSchema
from glow.training.commands import mine_command, train
from glow.training.data import Collection, Given, read_collection
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.negatives import MiningOptions, match_negatives, mine, read_header, read_negatives
from glow.training.towers import TrainConfig
from research.folders import read_records, write_folder

SCHEMA = FieldSchema.preset("glow-default")
ALL = MiningOptions(first=1, last=51, count=51, margin=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toy_corpus: Path) -> Path:
    """The toy corpus and a twin of its first document, with a query of three words from each text, and a blank one."""
    folder = tmp_path_factory.mktemp("data") / "toy"
    documents = read_records(toy_corpus)
    documents[1] = {key: value for key, value in documents[1].items() if key != "anchor"}  # it was empty
    texts = {f"q{number}": document["text"].split()[1:4] for number, document in enumerate(documents)}
    relevant = {f"q{number}": [document["_id"]] for number, document in enumerate(documents)}
    relevant["q1"].append("toy/2")
    documents.append({**documents[0], "_id": "twin", "url": "https://elsewhere.example/"})
    queries = [{"_id": name, "text": " ".join(words)} for name, words in texts.items()]
    queries.append({"_id": "blank", "text": " "})
    write_folder(folder, documents, queries, {"train": relevant | {"blank": ["toy/4"]}})
    with (folder / "qrels" / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("q1\ttoy/3\t0\n")
    return folder


@pytest.fixture(scope="module")
def collection(folder: Path) -> Collection:
    return read_collection(folder, "train", SCHEMA)


@pytest.fixture(scope="module")
def dense(toy_model: Path, collection: Collection) -> EncodedCorpus:
    return EncodedCorpus(open_source(toy_model, EncodeOptions()), collection.documents)


@pytest.fixture
def file(collection: Collection, dense: EncodedCorpus, tmp_path: Path) -> Path:
    """A file of three negatives a query."""
    header, lines, _ = mine(collection, "train", SCHEMA, replace(ALL, first=3, count=3), dense)
    write_negatives(tmp_path / "negatives.jsonl", header, lines)
    return tmp_path / "negatives.jsonl"


def with_queries(collection: Collection, places: slice) -> Collection:
    parts = {name: getattr(collection, name)[places] for name in ("queries", "query_ids", "relevant")}
    return replace(collection, **parts)


def mined(
    collection: Collection, options: MiningOptions, dense: EncodedCorpus | None
) -> dict[str, QueryNegatives]:
    return {line.query_id: line for line in mine(collection, "train", SCHEMA, options, dense)[1]}


def naive(collection: Collection, dense: EncodedCorpus, options: MiningOptions) -> list[list[str]]:
    """The same by the definition, one query at a time, from all cosines; documents equal the twin's text by name."""
    found = []
    for number, text in enumerate(collection.queries):
        if not text.strip():
            found.append([])
            continue
        scores = dense.vectors @ dense.encode([text])[0][0]
        best = max(scores[document] for document in collection.relevant[number])
        kept = []
        for rank, document in enumerate(np.argsort(-scores, kind="stable"), start=1):
            identifier = collection.documents[document].id
            is_twin = identifier == "twin" and 0 in collection.relevant[number]
            is_near = options.margin > 0 and scores[document] >= best - (1 - options.margin) * abs(best)
            in_range = options.first <= rank <= options.last
            if in_range and document not in collection.relevant[number] and not is_twin and not is_near:
                kept.append(identifier)
        found.append(kept[: options.count])
    return found


@pytest.mark.parametrize(
    "options", [ALL, replace(ALL, first=4, last=20), replace(ALL, margin=0.9), replace(ALL, margin=0.5)]
)
def test_candidates_are_those_of_the_definition(
    collection: Collection, dense: EncodedCorpus, options: MiningOptions
) -> None:
    found = mined(collection, options, dense)
    ids = [[negative.id for negative in line.negatives] for line in found.values()]
    assert ids == naive(collection, dense, options)
    hits = dense.search([Query("q", found["q7"].query)], 51)["q"]
    for negative in found["q7"].negatives:
        hit = hits[negative.rank - 1]
        assert (hit.document_id, hit.score, negative.source) == (negative.id, negative.score, "dense")


@pytest.mark.parametrize("sign", [1, -1])
def test_bm25_mines_with_the_margin_of_a_model(
    collection: Collection, dense: EncodedCorpus, sign: int
) -> None:
    """Alone it knows no dense score; with a model the near ones go, below 0 as well, and nothing else does."""
    dense = copy.copy(dense)
    dense.vectors = sign * dense.vectors
    options = replace(ALL, retriever="lexical", margin=0.9)
    alone, guarded = mined(collection, options, None), mined(collection, options, dense)
    retriever = LexicalRetriever(collection.documents, [name for name in SCHEMA.names if name != "url"])
    hits = retriever.search([Query("q9", collection.queries[9])], 51)["q9"]
    expected = [hit.document_id for hit in hits if hit.document_id != "toy/9"]
    assert [negative.id for negative in alone["q9"].negatives] == expected
    left_out = 0
    for number, (query_id, line) in enumerate(alone.items()):
        scores = dense.vectors @ dense.encode([line.query])[0][0]
        best = max(scores[document] for document in collection.relevant[number])
        kept = [n for n in line.negatives if scores[dense.ids.index(n.id)] < best - 0.1 * abs(best)]
        assert list(guarded[query_id].negatives) == kept
        left_out += len(line.negatives) - len(kept)
    assert left_out


def test_a_random_choice_depends_on_seed_and_query_alone(
    collection: Collection, dense: EncodedCorpus
) -> None:
    options = replace(ALL, count=4, seed=1)
    first, again = mined(collection, options, dense), mined(collection, options, dense)
    assert first == again
    assert first != mined(collection, replace(options, seed=2), dense)
    reverse = with_queries(collection, slice(None, None, -1))
    # Scores may differ in the last bit with the batch; the choice does not.
    for query_id, line in mined(reverse, options, dense).items():
        assert [negative.id for negative in line.negatives] == [n.id for n in first[query_id].negatives]
    chosen = {negative.rank for line in first.values() for negative in line.negatives}
    assert len(chosen) > 20  # from the whole range, not its head


def test_what_was_left_out_is_counted(collection: Collection, dense: EncodedCorpus) -> None:
    _, lines, figures = mine(collection, "train", SCHEMA, ALL, dense)
    assert figures["left_out"] == {"relevant": 51, "equal": 1, "margin": 0}
    assert figures["negatives"] == 50 * 51 - 52 == sum(len(line.negatives) for line in lines)
    assert (figures["queries"], figures["queries_with_negatives"]) == (51, 50)


def test_vectors_without_a_model_are_refused(collection: Collection) -> None:
    with pytest.raises(ConfigError, match="--model"):
        mine(collection, "train", SCHEMA, MiningOptions(), None)


def test_a_file_comes_back_as_document_numbers(
    collection: Collection, dense: EncodedCorpus, file: Path
) -> None:
    found = read_negatives(file, collection)
    lines = mined(collection, replace(ALL, first=3, count=3), dense)
    ids = [[collection.documents[number].id for number in numbers] for numbers in found]
    assert ids == [[negative.id for negative in line.negatives] for line in lines.values()]
    header = read_header(file)
    assert (header.data, header.split, header.queries) == ("toy", "train", 51)
    assert header.model is not None and header.model.sha256 == dense.source.hash


def test_a_part_of_the_queries_finds_its_negatives(collection: Collection, file: Path) -> None:
    part = with_queries(collection, slice(5, 8))
    assert read_negatives(file, part) == read_negatives(file, collection)[5:8]


def test_a_negative_judged_relevant_since_is_left_out(collection: Collection, file: Path) -> None:
    before = read_negatives(file, collection)
    relevant = [collection.relevant[0] | {before[0][1]}, *collection.relevant[1:]]
    after = read_negatives(file, replace(collection, relevant=relevant))
    assert after[0] == (before[0][0], before[0][2])
    assert after[1:] == before[1:]


@pytest.mark.parametrize("change", [{"id": "other"}, {"fields": {"text": ("other words",)}}])
def test_other_documents_are_refused(collection: Collection, file: Path, change: dict[str, Any]) -> None:
    documents = [*collection.documents[:-1], replace(collection.documents[-1], **change)]
    with pytest.raises(MismatchError, match="mined from other documents"):
        read_negatives(file, replace(collection, documents=documents))


def test_the_same_documents_under_another_schema_are_the_same(folder: Path, collection: Collection) -> None:
    other = read_collection(folder, "train", FieldSchema.preset("bison-msmarco"))
    assert other.documents[0].fields != collection.documents[0].fields
    assert documents_hash(other.documents) == documents_hash(collection.documents)


def test_other_queries_are_refused(collection: Collection, file: Path) -> None:
    queries = ["another question", *collection.queries[1:]]
    with pytest.raises(MismatchError, match="'another question'"):
        read_negatives(file, replace(collection, queries=queries))
    with pytest.raises(MismatchError, match="none of the 51 queries"):
        read_negatives(file, replace(collection, query_ids=[f"x{i}" for i in range(51)]))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"{", b"", "not a file of negatives"),
        (b'"glow_negatives":1', b'"glow_negatives":2', "format 1"),
        (b'{"query_id": "q3"', b'\n{"query_id": "q2"', "50 queries, its header says 51"),
        (b'"query": "', b'"query: "', "not JSON"),
        (b'"id": "toy/1"', b'"id": "gone"', "no document 'gone'"),
        (b'"id": "toy/1"', b'"id": 7', "no document '7'"),
        (b'"query_id": "q3"', b'"query": "q3"', "query_id"),
    ],
)
def test_damage_ends_in_a_named_error(
    old: bytes, new: bytes, said: str, collection: Collection, file: Path
) -> None:
    raw = file.read_bytes()
    assert old in raw
    file.write_bytes(raw.replace(old, new, 1))
    with pytest.raises(FormatError, match=said):
        read_negatives(file, collection)


def test_files_find_the_collections_whose_documents_and_queries_were_mined(
    collection: Collection, file: Path
) -> None:
    """A folder may be given twice, and pairs made from its documents have the same documents and other queries."""
    other = replace(collection, name="other", documents=collection.documents[::-1])
    made = replace(collection, name="made", query_ids=[f"s{query_id}" for query_id in collection.query_ids])
    negatives = read_negatives(file, collection)
    found = match_negatives([file], [other, made, collection, collection])
    assert found == [None, None, negatives, negatives]
    for files, collections, said in (
        ([file], [other], r"negatives\.jsonl was mined from other documents"),
        ([file], [made], "none of the"),
        ([file, file], [collection], "two files hold negatives of toy"),
    ):
        with pytest.raises(MismatchError, match=said):
            match_negatives(files, collections)


def run(*arguments: object) -> typer.testing.Result:
    app = typer.Typer()
    app.command("mine")(mine_command)
    return typer.testing.CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_bm25_alone_opens_no_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # there is no models/DEFAULT here
    monkeypatch.setattr("glow.artifact.model.MODELS_PACKAGE", "of_no_installation")
    arguments = ("--data", folder, "--out", "b.jsonl", "--min-rank", 1, "--threads", 1)
    assert run(*arguments, "--retriever", "lexical").exit_code == 0
    assert read_header(tmp_path / "b.jsonl").model is None
    refused = run(*arguments)
    assert refused.exit_code == 3
    assert "no default model" in refused.output
    refused = run(*arguments, "--retriever", "lexical", "--max-rank", 1, "--min-rank", 2)
    assert refused.exit_code == 2
    assert "from 2 to 1" in refused.output


def test_two_rounds_mine_with_the_newer_towers(folder: Path, bert_folder: Path, tmp_path: Path) -> None:
    """Train, mine with the checkpoint, go on from it with those negatives, mine again."""
    optimizer = {"batch_size": 16, "max_steps": 6, "learning_rate": 3e-3, "precision": "fp32"}
    parts = {"towers": {"init_layers": [0, 1]}, "objective": {"hard_negatives": 2}, "optimizer": optimizer}
    config = TrainConfig.model_validate({"name": "round", **parts})
    collection = read_collection(folder, "train", SCHEMA)
    init, files, losses, mined = bert_folder, list[Path](), [], []
    for name in ("first", "second"):
        out, file = tmp_path / name, tmp_path / f"{name}.jsonl"
        given = Given(data=[folder], out=out, init=init, negatives=files, device="cpu")
        losses.append(train(config, given)["final_loss"])
        ranks = ("--min-rank", 2, "--max-rank", 30, "--count", 3, "--margin", 0.99)
        done = run("--data", folder, "--out", file, "--model", out, "--threads", 1, *ranks)
        assert done.exit_code == 0, done.output
        init, files = out, [file]
        options = {"retriever": "dense", "first": 2, "last": 30, "count": 3, "margin": 0.99, "seed": 0}
        assert read_header(file).options == options
        mined.append((read_header(file).model, read_negatives(file, collection)))
        assert sum(map(len, mined[-1][1])) == json.loads(done.stdout)["negatives"]
    assert any(mined[0][1])
    assert mined[0][0] != mined[1][0] and mined[0][1] != mined[1][1]
    # The second round without the file is another one: the negatives were learned from.
    plain = Given(data=[folder], out=tmp_path / "plain", init=tmp_path / "first", device="cpu")
    assert train(config, plain)["final_loss"] != losses[1]
