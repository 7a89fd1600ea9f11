"""BM25 impacts: Lucene's formula worked out by hand, idf from the given table, and the parity with bm25s."""

from math import log
from pathlib import Path

import bm25s
import numpy as np
import pytest

from glow.index.postings import Bm25, ImpactIndex, build_lexical
from glow.text import TermCounter, TermTable

DOCUMENTS = ["bees dance , bees hum", "the ants walk and the bees dance", "owls", "", "ants ants ants hum"]


def words() -> list[list[str]]:
    return [text.split() for text in DOCUMENTS]


def table() -> TermTable:
    counter = TermCounter()
    for document in words():
        counter.add({"text": document})
    return counter.table()


def test_impacts_are_lucenes_bm25(tmp_path: Path) -> None:
    """The lengths are 4, 4, 1, 0 and 4 words: 2.6 on average; bees are in 2 of 5 documents."""
    header = build_lexical(tmp_path, words(), table(), table(), Bm25(k1=1.5, b=0.6))
    index = ImpactIndex.open(tmp_path)
    idf = log(1 + (5 - 2 + 0.5) / (2 + 0.5))
    expected = idf * 2 / (2 + 1.5 * (1 - 0.6 + 0.6 * 4 / 2.6))
    assert index.by_word(["bees"], np.array([0]))[0, 0] == pytest.approx(expected, rel=1e-6)
    assert header.parameters == {"k1": 1.5, "b": 0.6, "average_length": pytest.approx(2.6)}
    assert (header.kind, header.documents, header.words) == ("bm25", 5, 6)


def test_stop_words_and_punctuation_are_not_in_the_index(tmp_path: Path) -> None:
    build_lexical(tmp_path, words(), table(), table())
    index = ImpactIndex.open(tmp_path)
    held = [index.vocabulary.word(row) for row in range(len(index.vocabulary))]
    assert held == ["ants", "bees", "dance", "hum", "owls", "walk"]
    assert index.search(["the", ",", "and"], 5)[1].tolist() == []


def test_idf_is_the_given_tables_and_a_word_that_it_lacks_is_one_of_a_single_document(tmp_path: Path) -> None:
    model = TermTable.from_counts({"bees": 900, "dance": 10, "hum": 2000}, 1000, {})
    build_lexical(tmp_path, words(), table(), model, Bm25(b=0.0))
    index = ImpactIndex.open(tmp_path)
    once = 1 / (1 + 1.2)
    found = index.by_word(["dance", "walk"], np.array([1]))[0].tolist()
    assert found == pytest.approx([once * log(1 + 990.5 / 10.5), once * log(1 + 999.5 / 1.5)], rel=1e-6)
    # A table that counts more documents with a word than documents must not make an impact of nothing.
    assert index.by_word(["hum"], np.array([0]))[0, 0] == pytest.approx(
        once * log(1 + 0.5 / 1000.5), rel=1e-6
    )


def test_words_that_the_table_dropped_cannot_be_found_and_do_no_harm(tmp_path: Path) -> None:
    counter = TermCounter(max_words=2)
    for document in words():
        counter.add({"text": document})
    build_lexical(tmp_path, words(), counter.table(), counter.table())
    assert ImpactIndex.open(tmp_path).search(["owls"], 5)[1].tolist() == []


def test_scores_are_those_of_bm25s(tmp_path: Path) -> None:
    """The reference: bm25s with method `lucene` over the same words."""
    generator = np.random.default_rng(0)
    vocabulary = [f"word{number}" for number in range(200)]
    corpus = [
        generator.choice(vocabulary, generator.integers(3, 60), p=np.arange(200, 0, -1) / 20100).tolist()
        for _ in range(300)
    ]
    counter = TermCounter()
    for document in corpus:
        counter.add({"text": document})
    build_lexical(tmp_path, corpus, counter.table(), counter.table(), Bm25(0.9, 0.4), chunk_postings=1000)
    index = ImpactIndex.open(tmp_path)
    reference = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    reference.index(corpus, show_progress=False)
    for start in range(0, 200, 8):
        query = vocabulary[start : start + 5]
        expected = reference.get_scores(query)
        assert index.score(query, np.arange(300)) == pytest.approx(expected, rel=1e-5)
