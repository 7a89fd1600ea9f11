"""A lexical index of stems: bm25s' scores with that stemmer, queries in any form, and spelling that stays with words."""

from functools import partial
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer

from glow.index.postings import IMPACTS_FOLDER, Bm25, ImpactIndex, build_lexical
from glow.index.spelling import SPELLING_FOLDER, SpellingTable, build_spelling
from glow.text import Analyzer, CorpusCounter, TermTable, is_lexical

STEMS = (
    "walk paint direct connect consist generat relat form depend secur happen find index search file".split()
)
ENDINGS = ("", "s", "ed", "ing", "ion", "ings")


def corpus() -> list[list[str]]:
    generator = np.random.default_rng(0)
    words = [stem + ending for stem in STEMS for ending in ENDINGS] + ["the", "being", "of"]
    return [generator.choice(words, generator.integers(3, 40)).tolist() for _ in range(200)]


def build(folder: Path, documents: list[list[str]], bm25: Bm25 | None = None) -> ImpactIndex:
    analyzer = Analyzer("english")
    counter = CorpusCounter(analyzer)
    for document in documents:
        counter.add({"text": document})
    words, terms = counter.tables()
    spell = partial(build_spelling, folder / SPELLING_FOLDER)
    build_lexical(folder / IMPACTS_FOLDER, documents, words, terms, bm25, analyzer=analyzer, on_words=spell)
    return ImpactIndex.open(folder / IMPACTS_FOLDER)


def test_scores_are_those_of_bm25s_with_that_stemmer_on_the_same_tokens(tmp_path: Path) -> None:
    documents = corpus()
    index = build(tmp_path, documents, Bm25(0.9, 0.4))
    stemmer = Stemmer.Stemmer("english")
    reference = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    tokens = [stemmer.stemWords([word for word in document if is_lexical(word)]) for document in documents]
    reference.index(tokens, show_progress=False)
    assert index.header.words == len(set().union(*tokens))
    for start in range(0, len(STEMS) - 3):
        query = [stem + ENDINGS[start % len(ENDINGS)] for stem in STEMS[start : start + 3]]
        expected = reference.get_scores(stemmer.stemWords(query))
        assert index.score(query, np.arange(200)) == pytest.approx(expected, rel=1e-5)


def test_every_form_of_a_word_finds_the_same(tmp_path: Path) -> None:
    index = build(tmp_path, [["directories", "hold", "files"], ["owls"]])
    assert index.header.analyzer == "english"
    for form in ("directory", "directories"):
        scores, rows = index.search([form], 5)
        assert rows.tolist() == [0] and index.holds(form)
        assert index.by_word([form, "owl"], np.array([0]))[0].tolist() == pytest.approx(
            [float(scores[0]), 0.0]
        )
        assert index.bound([form]) == pytest.approx(float(scores[0]))
    assert not index.holds("direction")


def test_a_stop_word_finds_nothing_though_its_stem_is_that_of_another_word(tmp_path: Path) -> None:
    index = build(tmp_path, [["wills", "testament"], ["owls"]])
    assert index.search(["wills"], 5)[1].tolist() == [0]
    assert index.search(["will"], 5)[1].tolist() == []
    assert index.bound(["will"]) == 0.0


def test_spelling_has_whole_words_that_the_documents_hold(tmp_path: Path) -> None:
    build(tmp_path, [["directories", "directory"], ["directory", "being"]])
    table = SpellingTable.open(tmp_path / SPELLING_FOLDER)
    assert dict(table.items()) == {"directories": 1, "directory": 2}
    assert table.candidates("direcotry") == {"directory": 2}


def test_an_index_of_an_older_glow_has_words_as_they_are(tmp_path: Path) -> None:
    table = TermTable.from_counts({"bees": 1}, 1, {})
    build_lexical(tmp_path, [["bees"]], table, table)
    header = tmp_path / "impacts.json"
    header.write_text(
        header.read_text().replace('"analyzer": "plain",', "").replace('"analyzer":"plain",', "")
    )
    assert "analyzer" not in header.read_text()
    index = ImpactIndex.open(tmp_path)
    assert index.analyzer.name == "plain" and not index.holds("bee")
