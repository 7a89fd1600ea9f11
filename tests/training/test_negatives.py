"""Hard negatives: which documents are mined, and what a file promises."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glow.errors import ConfigError, FormatError, MismatchError
from glow.evaluation.retrievers import LexicalRetriever
from glow.negatives import QueryNegatives, documents_hash, write_negatives
from glow.records import Document, Query
from glow.schema import FieldSchema
from glow.training.data import Collection, read_collection
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.negatives import MiningOptions, match_negatives, mine, read_header, read_negatives
from tests.training.mined_folder import SCHEMA, write_mined_folder

ALL = MiningOptions(first=1, last=51, count=51, margin=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toy_corpus: Path) -> Path:
    return write_mined_folder(tmp_path_factory.mktemp("data") / "toy", toy_corpus)


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
    "options",
    [ALL, replace(ALL, first=4, last=20), replace(ALL, margin=0.9), replace(ALL, margin=0.5)],
)
def test_candidates_are_those_of_the_definition(
    collection: Collection, dense: EncodedCorpus, options: MiningOptions
) -> None:
    found = mined(collection, options, dense)
    ids = [[negative.id for negative in line.negatives] for line in found.values()]
    assert ids == naive(collection, dense, options)
    assert any(ids)


def test_ranks_and_scores_are_the_retrievers(collection: Collection, dense: EncodedCorpus) -> None:
    line = mined(collection, replace(ALL, first=5, last=9), dense)["q7"]
    hits = dense.search([Query("q", line.query)], 9)["q"]
    for negative in line.negatives:
        hit = hits[negative.rank - 1]
        assert (hit.document_id, hit.score, negative.source) == (negative.id, negative.score, "dense")
    assert line.negatives[-1].rank == 9


@pytest.mark.parametrize("sign", [1, -1])
def test_bm25_mines_with_the_margin_of_a_model(
    collection: Collection, dense: EncodedCorpus, sign: int
) -> None:
    """Alone it knows no dense score; with a model the near ones go, below 0 as well, and nothing else does."""
    dense = copy.copy(dense)
    dense.vectors = sign * dense.vectors
    options = replace(ALL, retriever="lexical", margin=0.9)
    alone, guarded = mined(collection, options, None), mined(collection, options, dense)
    run = LexicalRetriever(collection.documents, [n for n in SCHEMA.names if n != "url"]).search(
        [Query("q9", collection.queries[9])], 51
    )
    expected = [hit.document_id for hit in run["q9"] if hit.document_id != "toy/9"]
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
    reverse = replace(
        collection,
        queries=collection.queries[::-1],
        query_ids=collection.query_ids[::-1],
        relevant=collection.relevant[::-1],
    )
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


@pytest.mark.parametrize(
    "faults",
    [
        {"first": 9, "last": 8},
        {"first": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(faults: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        MiningOptions(**faults)  # type: ignore[arg-type]


def test_vectors_without_a_model_are_refused(collection: Collection) -> None:
    with pytest.raises(ConfigError, match="--model"):
        mine(collection, "train", SCHEMA, MiningOptions(), None)


def test_a_file_comes_back_as_document_numbers(
    collection: Collection, dense: EncodedCorpus, file: Path
) -> None:
    found = read_negatives(file, collection)
    lines = mined(collection, replace(ALL, first=3, count=3), dense)
    assert [[collection.documents[number].id for number in numbers] for numbers in found] == [
        [negative.id for negative in line.negatives] for line in lines.values()
    ]
    header = read_header(file)
    assert (header.data, header.split, header.queries) == ("toy", "train", 51)
    assert header.model is not None
    assert header.model.sha256 == dense.source.hash
    assert header.options["first"] == 3


def test_a_part_of_the_queries_finds_its_negatives(collection: Collection, file: Path) -> None:
    part = replace(
        collection,
        queries=collection.queries[5:8],
        query_ids=collection.query_ids[5:8],
        relevant=collection.relevant[5:8],
    )
    assert read_negatives(file, part) == read_negatives(file, collection)[5:8]


def test_a_negative_judged_relevant_since_is_left_out(collection: Collection, file: Path) -> None:
    before = read_negatives(file, collection)
    relevant = [collection.relevant[0] | {before[0][1]}, *collection.relevant[1:]]
    after = read_negatives(file, replace(collection, relevant=relevant))
    assert after[0] == (before[0][0], before[0][2])
    assert after[1:] == before[1:]


def edit(**changes: object) -> Callable[[Document], Document]:
    return lambda document: replace(document, **changes)


@pytest.mark.parametrize("change", [edit(id="other"), edit(fields={"text": ("other words",)})])
def test_other_documents_are_refused(
    collection: Collection, file: Path, change: Callable[[Document], Document]
) -> None:
    documents = [*collection.documents[:-1], change(collection.documents[-1])]
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


def test_damage_ends_in_a_named_error(collection: Collection, file: Path) -> None:
    raw = file.read_bytes()
    lines = raw.split(b"\n")
    cases = [
        (b"", "not a file of negatives"),
        (b"\n".join(lines[1:]), "not a file of negatives"),
        (raw.replace(b'"glow_negatives":1', b'"glow_negatives":2'), "format 1"),
        (b"\n".join(lines[:-2]) + b"\n", "50 queries, its header says 51"),
        (raw[:-40], "not JSON"),
        (b"\n".join([lines[0], lines[2], *lines[2:]]), "50 queries, its header says 51"),
        (raw.replace(b'"id": "toy/1"', b'"id": "gone"'), "no document 'gone'"),
        (raw.replace(b'"id": "toy/1"', b'"id": 7'), "no document '7'"),
        (raw.replace(b'"query_id": "q3"', b'"query": "q3"'), "query_id"),
    ]
    for damaged, message in cases:
        assert damaged != raw
        file.write_bytes(damaged)
        with pytest.raises(FormatError, match=message):
            read_negatives(file, collection)


def test_files_find_their_collections(
    collection: Collection, dense: EncodedCorpus, file: Path, tmp_path: Path
) -> None:
    other = replace(collection, name="other", documents=collection.documents[::-1])
    assert match_negatives([file], [other, collection]) == [None, read_negatives(file, collection)]
    with pytest.raises(MismatchError, match=r"negatives\.jsonl was mined from other documents"):
        match_negatives([file], [other])
    with pytest.raises(MismatchError, match="two files hold negatives of toy"):
        match_negatives([file, file], [collection])


def test_of_collections_with_the_same_documents_those_get_negatives_whose_queries_were_mined(
    collection: Collection, file: Path
) -> None:
    """A folder may be given twice, and pairs made from its documents have the same documents and other queries."""
    made = replace(
        collection, name="made", query_ids=[f"s{number}" for number in range(len(collection.query_ids))]
    )
    negatives = read_negatives(file, collection)
    assert match_negatives([file], [made, collection, collection]) == [None, negatives, negatives]
    with pytest.raises(MismatchError, match="none of the"):
        match_negatives([file], [made])
