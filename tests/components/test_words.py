"""Words and spelling as components: built, merged and joined; merging and joining equal a build of what is left."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.errors import MismatchError
from glow.index.postings import POSTINGS, PostingsOptions, PostingsRules
from glow.index.spelling import SPELLING
from glow.runtime import Model
from glow.text import (
    AnalyzerName,
    is_lexical,
)
from tests.components.made_words import asked, build_words, corpus_of, files, joined_of, made_up


@pytest.fixture(scope="module")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**16), count=st.integers(0, 25), max_words=st.sampled_from([8, 1000]))
@pytest.mark.parametrize("analyzer", ["plain", "english"])
def test_spelling_counts_whole_words_of_the_texts(
    model: Model, analyzer: AnalyzerName, seed: int, count: int, max_words: int
) -> None:
    with TemporaryDirectory() as scratch:
        corpus = corpus_of(model, made_up(count, seed), Path(scratch) / "made", None, max_words)
        made = build_words(corpus, PostingsRules(analyzer=analyzer))
        held: Counter[str] = Counter()
        for document in corpus.held:
            texts = [text for name, values in document.fields.items() if name != "url" for text in values]
            held.update({word for text in texts for word in model.preprocessor.pieces.words(text)})
        expected = {
            word: held[word]
            for word, _ in corpus.counted.items()
            if held[word] and 4 <= len(word) <= 24 and word.isalpha() and is_lexical(word)
        }
        assert dict(made[SPELLING].items()) == expected
        assert list(expected) == [word for word, _ in made[SPELLING].items()]


def test_rules_of_an_index_make_what_is_added_and_what_replaces_it(tmp_path: Path, model: Model) -> None:
    asked_for = POSTINGS.rules(PostingsOptions(), asked(model))
    assert asked_for is not None and asked_for.average_length is None
    corpus = corpus_of(model, made_up(20), tmp_path / "base")
    base = build_words(corpus, asked_for)
    assert set(files(tmp_path / "base" / "stems")) == {"terms.json", "words.bin", "offsets.npy", "dfs.npy"}
    report = POSTINGS.report(base, asked_for, {})["lexical"]
    assert report["postings"] == base[POSTINGS].header.postings
    added, replaced = (POSTINGS.rules_of(base, delta=delta) for delta in (True, False))
    assert added is not None and replaced is not None
    assert added.stems == tmp_path / "base" / "stems" and added.analyzer == "english"
    assert added.average_length == base[POSTINGS].header.parameters["average_length"]
    again = build_words(corpus_of(model, corpus.held, tmp_path / "again", corpus.terms), added)
    assert files(again.folder / "impacts") == files(base.folder / "impacts")


def test_words_by_another_analyzer_are_not_joined(tmp_path: Path, model: Model) -> None:
    whole = corpus_of(model, made_up(9), tmp_path / "whole")
    readers = [
        build_words(corpus_of(model, whole.held, tmp_path / name, whole.terms), PostingsRules(analyzer=name))[
            POSTINGS
        ]
        for name in ("plain", "english")
    ]
    with pytest.raises(MismatchError, match="of its base by the analyzer plain, of its delta by english"):
        joined_of(POSTINGS, readers[0], readers[1], np.array([0]))


def test_without_words_there_is_no_spelling(model: Model) -> None:
    assert POSTINGS.rules(PostingsOptions(lexical=False), asked(model)) is None
    assert SPELLING.rules(None, asked(model)) is None
