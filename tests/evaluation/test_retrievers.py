"""What is evaluated searches as the service does; the cache of vectors changes no figure; and the BM25 baseline."""

import json
import math
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.artifact import documents_hash, write_artifact
from glow.errors import ConfigError, InputError
from glow.evaluation import DenseOptions, Retriever, RetrieverKind, evaluate, find_tasks, open_retriever
from glow.evaluation.retrievers import DenseRetriever, LexicalRetriever
from glow.evaluation.task import Corpus
from glow.evaluation.version import VersionSearch, sample_texts
from glow.index import Index
from glow.index.vectors import VECTORS, SearchParams, build_dense
from glow.records import Document, Query
from glow.runtime import Model
from glow.search import DEFAULT_CANDIDATES
from glow.text import TermStats
from glow_service.search.plan import SearchPlan
from glow_service.search.run import SearchSession
from tests.made_index import live

QUERIES = [Query(str(number), text) for number, text in enumerate(["how do bees find home", "owls", "krill"])]


def dense(model: Path, data: Path, **options: object) -> Retriever:
    return open_retriever("dense", data, Model.open(model), DenseOptions(**options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def index(toy_index: Path) -> Index:
    return live(toy_index)


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_a_corpus_in_memory_is_searched_as_the_service_searches_an_index(
    kind: RetrieverKind, toy_model: Path, toy_data: Path, index: Index
) -> None:
    run = open_retriever(kind, toy_data, Model.open(toy_model), DenseOptions()).search(QUERIES, 10)
    for query in QUERIES:
        plan = SearchPlan(query.text, 10, 0, 100, SearchParams(), kind, match="any")
        hits = SearchSession(index, plan).run().found.hits
        assert [hit.document_id for hit in run[query.id]] == [hit.id for hit in hits]
        assert [hit.score for hit in run[query.id]] == pytest.approx([hit.score for hit in hits], abs=1e-5)


def test_a_query_without_a_word_finds_nothing(toy_model: Path, toy_data: Path) -> None:
    run = dense(toy_model, toy_data).search([Query("empty", " \x00 "), *QUERIES], 3)
    assert [len(run[query_id]) for query_id in ("empty", "0", "1", "2")] == [0, 3, 3, 3]
    assert dense(toy_model, toy_data).search([], 3) == {}


def test_term_statistics_change_the_vectors(toy_model: Path, toy_data: Path) -> None:
    """Half a corpus has another idf than the model's own."""
    lines = (toy_data / "corpus.jsonl").read_text().splitlines(keepends=True)
    (toy_data / "corpus.jsonl").write_text("".join(lines[:25]))
    sources: list[TermStats] = ["corpus", "model"]
    scores = [dense(toy_model, toy_data, term_stats=source).search(QUERIES, 5)["0"] for source in sources]
    assert len({tuple(hit.score for hit in hits) for hits in scores}) == 2


def test_documents_without_text_in_the_models_fields_are_left_out(
    toy_model: Path, toy_data: Path, tmp_path: Path
) -> None:
    """A document with a body only is invisible to a model of titles; as a builder does, hybrid leaves it out too."""
    with write_artifact(tmp_path / "titles", "model") as writer:
        shutil.copytree(toy_model, writer.folder, dirs_exist_ok=True)
        schema = json.loads((toy_model / "schema.json").read_text())
        schema["fields"] = [field for field in schema["fields"] if field["name"] == "title"]
        (writer.folder / "schema.json").write_text(json.dumps(schema))
        (writer.folder / "manifest.json").unlink()
    with (toy_data / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "blank", "title": " ", "lang": "en"}\n{"_id": "body", "text": "zebras"}\n')
    titles = Model.open(tmp_path / "titles")
    ids = [open_retriever(kind, toy_data, titles, DenseOptions()).ids for kind in ("dense", "hybrid")]
    assert ids[0] == ids[1] == dense(toy_model, toy_data).ids[:50]
    assert dense(toy_model, toy_data).ids[50:] == ["body"]


def test_dense_without_a_model_and_a_corpus_without_text_are_refused(toy_model: Path, toy_data: Path) -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        open_retriever("hybrid", toy_data, None, DenseOptions())
    (toy_data / "corpus.jsonl").write_text('{"_id": "a", "title": ""}\n')
    for kind in ("dense", "lexical", "hybrid"):
        with pytest.raises(InputError, match=r"toy/corpus\.jsonl holds no document"):
            open_retriever(kind, toy_data, Model.open(toy_model), DenseOptions())


def test_the_cache_is_used_and_gives_the_same_hits(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    encoded: list[tuple[int, int]] = []
    model, options = Model.open(toy_model), DenseOptions(cache=tmp_path / "cache")
    corpus = Corpus(toy_data, model.preprocessor.schema.names)
    first, second = (
        DenseRetriever(model, corpus, options, lambda *done: encoded.append(done)).search(QUERIES, 10)
        for _ in range(2)
    )
    assert first == second
    assert encoded == [(50, 50)], "the second run encoded again"


@pytest.mark.parametrize("damage", ["truncated", "empty", "another shape", "an archive"])
def test_a_damaged_cache_is_made_anew(toy_model: Path, toy_data: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    first = dense(toy_model, toy_data, cache=cache).search(QUERIES, 10)
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
            with path.open("wb") as file:
                np.savez(file, a=np.zeros(3))
    assert dense(toy_model, toy_data, cache=cache).search(QUERIES, 10) == first
    assert path.read_bytes() == whole


def test_another_corpus_order_or_table_has_its_own_cache(
    toy_model: Path, toy_data: Path, tmp_path: Path
) -> None:
    cache, corpus = tmp_path / "cache", toy_data / "corpus.jsonl"
    first = dense(toy_model, toy_data, cache=cache).search(QUERIES, 5)
    # The term statistics are equal, but the rows of the vectors differ.
    corpus.write_text("".join(reversed(corpus.read_text().splitlines(keepends=True))))
    second = dense(toy_model, toy_data, cache=cache).search(QUERIES, 5)
    for query in QUERIES:
        assert [hit.document_id for hit in second[query.id]] == [hit.document_id for hit in first[query.id]]
    with corpus.open("a") as file:
        file.write('{"_id": "new", "title": "bees"}\n')
    assert len(list(cache.iterdir())) == 2
    assert "new" in dense(toy_model, toy_data, cache=cache).ids
    assert len(list(cache.iterdir())) == 3
    dense(toy_model, toy_data, cache=cache, term_stats="model")  # whose table is of the corpus without it
    assert len(list(cache.iterdir())) == 4


def test_models_that_encode_documents_alike_share_the_cache(toy_model: Path) -> None:
    files = Model.open(toy_model).manifest.files
    own = documents_hash(files)
    for name in files:
        other = {**files, name: files[name].model_copy(update={"sha256": "0" * 64})}
        alike = name.startswith(("query", "terms/", "document-explain", "report", "towers"))
        assert (documents_hash(other) == own) == alike, name


TEXTS = ["what about bees", "ants", "", "🐝", "water for rice", "the moon pulls tides"]


def test_a_version_is_asked_as_a_service_asks_it(index: Index) -> None:
    search = VersionSearch(index, TEXTS)
    assert search.retrievers == ("dense", "hybrid")
    for retriever in search.retrievers:
        for text, ids in zip(TEXTS, search.ids(retriever), strict=True):
            plan = SearchPlan(text, 10, 0, DEFAULT_CANDIDATES, SearchParams(), retriever, match="any")
            has_words = bool(index.preprocessor.query(text).words)
            hits = SearchSession(index, plan).run().found.hits if has_words else ()
            assert (text, ids) == (text, tuple(hit.id for hit in hits))


def test_recall_is_the_share_of_what_comparing_with_all_finds(index: Index) -> None:
    """Of an index that looks into 64 of several hundred lists, over vectors without any order to go by."""
    assert VersionSearch(index, TEXTS).recall() == 1.0
    assert VersionSearch(index, ["", " "]).recall() is None
    vectors = np.random.default_rng(0).standard_normal((20_000, index[VECTORS].dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rough = build_dense(vectors, "ivf-pq")
    recall = VersionSearch(index.with_reader(VECTORS, rough), TEXTS).recall()
    asked = [index.preprocessor.query(text) for text in TEXTS]
    queries = index.encoder.encode([tokens for tokens in asked if tokens.words])
    best = rough.search(queries, 10, SearchParams(exact=True))[1]  # by the stored vectors, in 8 bits
    found = rough.search(queries, 10)[1]
    pairs = zip(best.tolist(), found.tolist(), strict=True)
    shares = [len(set(one) & set(other)) / 10 for one, other in pairs]
    assert recall == pytest.approx(float(np.mean(shares)))
    assert recall < 1.0


@given(st.lists(st.text(max_size=3), max_size=40), st.integers(1, 10), st.randoms(use_true_random=False))
def test_a_sample_depends_on_the_texts_alone(texts: list[str], count: int, chance: random.Random) -> None:
    sample = sample_texts(texts, count)
    different = {text for text in texts if text.strip()}
    assert set(sample) <= different and len(sample) == min(count, len(different)) == len(set(sample))
    assert sample_texts(texts, count + 3)[:count] == sample
    shuffled = texts * 2
    chance.shuffle(shuffled)
    assert sample_texts(shuffled, count) == sample


def test_another_seed_gives_another_sample() -> None:
    texts = [str(number) for number in range(1000)]
    assert sample_texts(texts, 10) != sample_texts(texts, 10, seed=1)


FIELDS = ("title", "text")


def document(identifier: str, title: str = "", text: str = "") -> Document:
    return Document(identifier, {"title": (title,), "text": (text,)})


CORPUS = [
    document("bees", "How bees find home", "The dance of the bees."),
    document("honey", text="Honey is made by bees."),
    document("tax", "Tax return", "How to file it."),
    document("empty"),
]


def found(retriever: LexicalRetriever, text: str, k: int = 10) -> list[str]:
    return [hit.document_id for hit in retriever.search([Query("q", text)], k)["q"]]


def test_documents_that_share_no_word_are_not_returned() -> None:
    retriever = LexicalRetriever(CORPUS, FIELDS)
    assert found(retriever, "BEES dance") == ["bees", "honey"]
    assert found(retriever, "honey bees", k=1) == ["honey"]
    assert retriever.ids == ["bees", "honey", "tax", "empty"]
    assert found(LexicalRetriever(CORPUS, ("title",)), "dance honey") == []


@pytest.mark.parametrize("text", ["", "the of and", "?!", "\x00", "日本", "zebra"])
def test_without_a_word_in_common_nothing_is_found(text: str) -> None:
    queries = [Query("a", text), Query("b", "honey")]
    run = LexicalRetriever(CORPUS, FIELDS).search(queries, 1)
    assert [[hit.document_id for hit in run[query.id]] for query in queries] == [[], ["honey"]]
    for corpus in ([], [document("a", "the of and")]):
        assert found(LexicalRetriever(corpus, FIELDS), text) == []


@pytest.mark.parametrize("k", [1, 2, 5, 38, 40, 100])
def test_ties_go_to_the_earlier_documents(k: int) -> None:
    """Forty documents, two of them better, the others equal."""
    corpus = [document(f"d{number}", "bees and honey") for number in range(40)]
    for number in (17, 30):
        corpus[number] = document(f"d{number}", "bees bees bees")
    others = [f"d{number}" for number in range(40) if number not in (17, 30)]
    assert found(LexicalRetriever(corpus, FIELDS), "bees", k) == ["d17", "d30", *others][:k]


def test_scores_are_those_of_bm25_with_k1_1_2_and_b_0_75() -> None:
    """Robertson's formula by hand, idf as Lucene has it: ln(1 + (N - df + 0.5) / (df + 0.5))."""
    texts = {"a": "bees bees honey", "b": "bees", "c": "tax form deadline letter"}
    retriever = LexicalRetriever([document(name, text) for name, text in texts.items()], FIELDS)
    scores = {hit.document_id: hit.score for hit in retriever.search([Query("q", "bees")], 10)["q"]}
    idf, average = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5)), 8 / 3
    for name, tf, length in (("a", 2, 3), ("b", 1, 1)):
        norm = 1.2 * (1 - 0.75 + 0.75 * length / average)
        assert scores[name] == pytest.approx(idf * tf / (tf + norm), rel=1e-5)


def test_urls_are_not_searched(toy_data: Path) -> None:
    """Every url of the toy corpus holds `example`, no text does."""
    retriever = open_retriever("lexical", toy_data, None, DenseOptions())
    assert retriever.search([Query("q", "example org html https")], 10) == {"q": []}


def test_the_baseline_reproduces_the_published_figures_of_tldr(shared_data: Path) -> None:
    """The collection's own README: MRR@10 / nDCG@10 / recall@100 of BM25 on tldr's dev split."""
    (task,) = find_tasks(shared_data / "tldr", ["dev"])
    retriever = open_retriever("lexical", shared_data / "tldr", None, DenseOptions())
    means = evaluate(retriever.search(task.queries, 100), task.qrels, ["RR@10", "nDCG@10", "R@100"]).means
    assert len(task.queries) == 2906
    assert means == pytest.approx({"RR@10": 0.493, "nDCG@10": 0.532, "R@100": 0.831}, abs=0.001)
