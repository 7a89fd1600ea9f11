"""Dense evaluation retrieves what the service would, and its cache never changes a figure."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import documents_hash, write_artifact
from glow.errors import ConfigError, InputError
from glow.evaluation import DenseOptions, Retriever, RetrieverKind, open_retriever
from glow.evaluation.retrievers import DenseRetriever
from glow.evaluation.task import Corpus
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, SearchParams
from glow.records import Query
from glow.runtime import Model
from glow.text import TermStats
from glow_service.search.plan import SearchPlan
from glow_service.search.run import SearchSession
from tests.made_index import live

QUERIES = [Query(str(number), text) for number, text in enumerate(["how do bees find home", "owls", "krill"])]


def retriever(model: Path, data: Path, **options: object) -> Retriever:
    return open_retriever("dense", data, Model.open(model), DenseOptions(**options))  # type: ignore[arg-type]


def test_hits_are_those_of_an_index_that_was_built(toy_model: Path, toy_data: Path, toy_index: Path) -> None:
    index = live(toy_index)
    run = retriever(toy_model, toy_data).search(QUERIES, 10)
    for query in QUERIES:
        vector = index.encoder.encode([index.preprocessor.query(query.text)])
        scores, rows = index[VECTORS].search(vector, 10, SearchParams(exact=True))
        expected = [document.id for document in index[STORED_FIELDS].rows(rows[0].tolist())]
        assert [hit.document_id for hit in run[query.id]] == expected
        assert [hit.score for hit in run[query.id]] == pytest.approx(scores[0].tolist(), abs=1e-5)


def test_a_query_without_a_word_finds_nothing(toy_model: Path, toy_data: Path) -> None:
    run = retriever(toy_model, toy_data).search([Query("empty", " \x00 "), *QUERIES], 3)
    assert [len(run[query_id]) for query_id in ("empty", "0", "1", "2")] == [0, 3, 3, 3]


def test_no_query_is_no_work(toy_model: Path, toy_data: Path) -> None:
    assert retriever(toy_model, toy_data).search([], 3) == {}


def test_term_statistics_change_the_vectors(toy_model: Path, toy_data: Path) -> None:
    """Otherwise the option would be without effect; half a corpus has another idf than the model's own."""
    lines = (toy_data / "corpus.jsonl").read_text().splitlines(keepends=True)
    (toy_data / "corpus.jsonl").write_text("".join(lines[:25]))
    sources: list[TermStats] = ["corpus", "model"]
    scores = [retriever(toy_model, toy_data, term_stats=source).search(QUERIES, 5)["0"] for source in sources]
    assert len({tuple(hit.score for hit in hits) for hits in scores}) == 2


def test_documents_without_text_in_the_models_fields_are_left_out(toy_model: Path, toy_data: Path) -> None:
    with (toy_data / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "blank", "title": " ", "lang": "en"}\n')
    assert "blank" not in retriever(toy_model, toy_data).ids
    assert len(retriever(toy_model, toy_data).ids) == 50


def test_a_model_of_fewer_fields_leaves_out_others(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    """A document with a body only is invisible to a model of titles; as a builder does, hybrid leaves it out too."""
    with write_artifact(tmp_path / "titles", "model") as writer:
        shutil.copytree(toy_model, writer.folder, dirs_exist_ok=True)
        schema = json.loads((toy_model / "schema.json").read_text())
        schema["fields"] = [field for field in schema["fields"] if field["name"] == "title"]
        (writer.folder / "schema.json").write_text(json.dumps(schema))
        (writer.folder / "manifest.json").unlink()
    with (toy_data / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "body", "text": "zebras"}\n')
    model = Model.open(tmp_path / "titles")
    dense = open_retriever("dense", toy_data, model, DenseOptions())
    hybrid = open_retriever("hybrid", toy_data, model, DenseOptions())
    assert len(dense.ids) == 50
    assert "body" not in dense.ids
    assert hybrid.ids == dense.ids


def test_the_cache_is_used_and_gives_the_same_hits(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    model, options = Model.open(toy_model), DenseOptions(cache=tmp_path / "cache")

    def hits() -> object:
        corpus = Corpus(toy_data, model.preprocessor.schema.names)
        return DenseRetriever(model, corpus, options, lambda *call: calls.append(call)).search(QUERIES, 10)

    first = hits()
    assert calls == [(50, 50)]
    assert hits() == first
    assert calls == [(50, 50)], "the second run encoded again"


@pytest.mark.parametrize("damage", ["truncated", "empty", "another shape", "an archive"])
def test_a_damaged_cache_is_made_anew(toy_model: Path, toy_data: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    first = retriever(toy_model, toy_data, cache=cache).search(QUERIES, 10)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    match damage:
        case "truncated":
            path.write_bytes(whole[:-100])
        case "empty":
            path.write_bytes(b"")
        case "another shape":
            np.save(path, np.zeros((3, 4), np.float32))
        case "an archive":
            np.savez(tmp_path / "x.npz", a=np.zeros(3))
            path.write_bytes((tmp_path / "x.npz").read_bytes())
    assert retriever(toy_model, toy_data, cache=cache).search(QUERIES, 10) == first
    assert path.read_bytes() == whole


def test_another_corpus_or_table_has_its_own_cache(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    retriever(toy_model, toy_data, cache=cache)
    with (toy_data / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "title": "bees"}\n')
    assert len(list(cache.iterdir())) == 1
    assert "new" in retriever(toy_model, toy_data, cache=cache).ids
    assert len(list(cache.iterdir())) == 2
    retriever(toy_model, toy_data, cache=cache, term_stats="model")  # whose table is of the corpus without it
    assert len(list(cache.iterdir())) == 3


def test_models_that_encode_documents_alike_share_the_cache(toy_model: Path) -> None:
    files = Model.open(toy_model).manifest.files
    own = documents_hash(files)
    for name in files:
        other = {**files, name: files[name].model_copy(update={"sha256": "0" * 64})}
        alike = name.startswith(("query", "terms/", "document-explain", "report", "towers"))
        assert (documents_hash(other) == own) == alike, name


def test_another_order_has_its_own_cache(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    """The term statistics are equal for both, but the rows of the vectors differ."""
    first = retriever(toy_model, toy_data, cache=tmp_path / "cache").search(QUERIES, 5)
    lines = (toy_data / "corpus.jsonl").read_text().splitlines(keepends=True)
    (toy_data / "corpus.jsonl").write_text("".join(reversed(lines)))
    second = retriever(toy_model, toy_data, cache=tmp_path / "cache").search(QUERIES, 5)
    for query in QUERIES:
        assert [hit.document_id for hit in second[query.id]] == [hit.document_id for hit in first[query.id]]


def test_hybrid_holds_what_either_part_finds(toy_model: Path, toy_data: Path) -> None:
    model = Model.open(toy_model)
    kinds: list[RetrieverKind] = ["dense", "lexical", "hybrid"]
    retrievers = {kind: open_retriever(kind, toy_data, model, DenseOptions()) for kind in kinds}
    found = {kind: retriever.search(QUERIES, 10) for kind, retriever in retrievers.items()}
    assert all(list(run) == [query.id for query in QUERIES] for run in found.values())
    runs = {kind: run["0"] for kind, run in found.items()}
    ids = {kind: [hit.document_id for hit in hits] for kind, hits in runs.items()}
    assert ids["lexical"][0] in ids["hybrid"]
    assert len(ids["hybrid"]) == len(set(ids["hybrid"])) == 10


def test_hybrid_answers_as_a_service_of_an_index(toy_model: Path, toy_data: Path, toy_index: Path) -> None:
    index = live(toy_index)
    assert {json.loads(line)["_id"] for line in (toy_data / "corpus.jsonl").read_text().splitlines()} == {
        document.id for document in index[STORED_FIELDS].scan()
    }
    found = open_retriever("hybrid", toy_data, Model.open(toy_model), DenseOptions()).search(QUERIES, 10)
    for query in QUERIES:
        call = SearchPlan(query.text, 10, 0, 100, SearchParams(), retriever="hybrid", match="any")
        has_words = bool(index.preprocessor.query(query.text).words)
        served = SearchSession(index, call).run().found.hits if has_words else ()
        assert [hit.document_id for hit in found[query.id]] == [hit.id for hit in served]
        scores = [hit.score for hit in served]
        assert [hit.score for hit in found[query.id]] == pytest.approx(scores, abs=1e-5)


def test_dense_without_a_model_and_a_corpus_without_text_are_refused(toy_model: Path, toy_data: Path) -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        open_retriever("hybrid", toy_data, None, DenseOptions())
    (toy_data / "corpus.jsonl").write_text('{"_id": "a", "title": ""}\n')
    for kind in ("dense", "lexical", "hybrid"):
        with pytest.raises(InputError, match=r"toy/corpus\.jsonl holds no document"):
            open_retriever(kind, toy_data, Model.open(toy_model), DenseOptions())
