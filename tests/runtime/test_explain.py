"""Reasons: the figures that the towers used, words left out as if re-encoded, and nothing opened before it is asked for."""

import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from glow.artifact.model import EXPLAIN_FILES
from glow.collection import read_documents
from glow.errors import FormatError
from glow.records import Document
from glow.runtime import Model
from glow.runtime.explain import AttentionEncoder, Explainer, Explanation

QUERY = "how do honey bees, bees and whales find 東京?"


@pytest.fixture(scope="module")
def explainer(model: Model) -> Explainer:
    return Explainer(model.folder, model.preprocessor)


@pytest.fixture(scope="module")
def documents(model: Model, toy_corpus: Path) -> list[Document]:
    found = list(read_documents(toy_corpus, model.preprocessor.schema.names))
    long = Document("long", {"title": ("Bees!",), "text": ("bees and whales " * 40,), "anchor": ("bees",)})
    return [*found, long, Document("empty", {})]


def by_token(found: Explanation, field: str, word: str) -> tuple[float, float]:
    (term,) = [term for term in found.terms if (term.field, term.word) == (field, word)]
    return term.weight, term.attention


def test_every_token_is_told_with_the_weight_and_attention_of_its_run(
    model: Model, explainer: Explainer, documents: list[Document]
) -> None:
    """Against loops over tokens: fields are counted off by their [SEP], words by their ids."""
    own = model.preprocessor
    tower = AttentionEncoder(model.folder / "document-explain.onnx")
    for document, found in zip(documents, explainer.explain_documents(documents), strict=True):
        tokens = own.document(document)
        attention = tower.run([tokens])[1][0]
        assert len(attention) == len(tokens)
        expected: dict[tuple[str, str], float] = {}
        specials, field = 0.0, 0
        for place, number in enumerate(tokens.word_ids.tolist()):
            if number < 0:
                specials += float(attention[place])
                field += place > 0
                continue
            key = own.schema.names[field], tokens.words[number]
            expected[key] = expected.get(key, 0.0) + float(attention[place])
            assert by_token(found, *key)[0] == tokens.weights[place]
        told = {(term.field, term.word): term.attention for term in found.terms}
        assert told == pytest.approx(expected, abs=1e-5)
        assert found.specials == pytest.approx(specials, abs=1e-5)
        assert found.specials + sum(term.attention for term in found.terms) == pytest.approx(1.0, abs=1e-5)
        assert sorted(found.terms, key=lambda term: -term.attention) == list(found.terms)


def test_tf_is_what_the_weight_was_worked_out_from_and_idf_the_tables(
    model: Model, explainer: Explainer, documents: list[Document]
) -> None:
    found = {(term.field, term.word): term for term in explainer.explain_document(documents[-2]).terms}
    assert found["text", "bees"].tf == 40  # most of them beyond the budget
    assert found["title", "bees"].tf == found["anchor", "bees"].tf == 1
    assert len({found[field, "bees"].weight for field in ("title", "anchor", "text")}) == 1
    asked = explainer.explain_query(QUERY)
    assert {term.word: term.tf for term in asked.terms} == Counter(model.preprocessor.pieces.words(QUERY))
    assert all(term.idf == model.preprocessor.weigher.idf(term.word) for term in asked.terms)
    assert {term.field for term in asked.terms} == {"query"}


def test_leaving_a_word_out_is_encoding_the_query_without_it(
    model: Model, explainer: Explainer, documents: list[Document]
) -> None:
    vectors = np.stack([found.vector for found in explainer.explain_documents(documents[:4])])
    found = explainer.leave_one_out(QUERY, vectors)
    assert [one.word for one in found] == list(dict.fromkeys(model.preprocessor.pieces.words(QUERY)))
    encoder = model.encoder("query")

    def scores(text: str) -> np.ndarray:
        return np.asarray(vectors @ encoder.run([model.preprocessor.query(text)])[0])

    for one in found:
        rest = re.sub(re.escape(one.word), " ", QUERY)
        np.testing.assert_allclose(one.deltas, scores(rest) - scores(QUERY), atol=1e-6)
    assert {one.word: one.deltas for one in found}["bees"][0] < -0.01  # toy/0 is about them: its score falls


def test_of_a_long_query_only_the_heaviest_words_are_left_out(
    explainer: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.runtime.explain.ABLATED_TOKENS", 3 * 7)  # "bees the home of owls" and two marks
    found = explainer.leave_one_out("bees the home of owls", np.zeros((1, 32), np.float32))
    assert [one.word for one in found] == ["bees", "home", "owls"]
    for text in ("bees", "bees Bees bees", ""):  # of one word nothing can be left out
        assert explainer.leave_one_out(text, np.zeros((2, 32), np.float32)) == []


def test_words_beyond_the_budget_come_in_when_one_is_left_out(model: Model, explainer: Explainer) -> None:
    text = "bees " * 30 + "whales"
    vectors = np.eye(1, 32, dtype=np.float32)
    assert "whales" not in model.preprocessor.query(text).words
    (one,) = explainer.leave_one_out(text, vectors)
    queries = [model.preprocessor.query(query) for query in ("whales", text)]
    alone, whole = (model.encoder("query").run([query])[0] for query in queries)
    np.testing.assert_allclose(one.deltas, [(alone - whole)[0]], atol=1e-6)


def test_attended_words_are_summed_over_fields_without_punctuation(
    explainer: Explainer, documents: list[Document]
) -> None:
    found = explainer.explain_document(documents[0])
    sums: dict[str, float] = {}
    for term in found.terms:
        if term.word not in ",.;!":
            sums[term.word] = sums.get(term.word, 0.0) + term.attention
    assert set(found.attended_words(3)) == set(sorted(sums, key=lambda word: -sums[word])[:3])
    assert len(found.attended_words(1000)) == len(sums)


def test_towers_are_opened_on_the_first_request_once(model: Model) -> None:
    lazy = Explainer(model.folder, model.preprocessor)
    assert not lazy.is_open
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lazy.explain_query, ["honey bees"] * 8))
    assert all(np.array_equal(one.vector, found[0].vector) for one in found)
    assert not lazy.is_open, "the other tower still lies in the folder alone"
    assert lazy.explain_documents([]) == []
    lazy.explain_document(Document("d", {"title": ("bees",)}))
    assert lazy.is_open


def test_a_graph_that_is_missing_damaged_or_plain_is_named(model: Model, tmp_path: Path) -> None:
    shutil.copytree(model.folder, tmp_path / "model")
    broken = Explainer(tmp_path / "model", model.preprocessor)
    graph = tmp_path / "model" / EXPLAIN_FILES[0]
    graph.unlink()
    with pytest.raises(FormatError, match="query-explain"):
        broken.explain_query("bees")
    graph.write_bytes(b"no graph")
    with pytest.raises(FormatError, match="query-explain"):
        broken.explain_query("bees")
    shutil.copyfile(tmp_path / "model" / "query.onnx", graph)
    with pytest.raises(FormatError, match="expected 'attention'"):
        broken.explain_query("bees")
    assert not broken.is_open
