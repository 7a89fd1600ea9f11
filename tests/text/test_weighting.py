"""Weights: idf, Eq. 6 to 8 against a plain writing of them, normalisation, and what is never looked up."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glow.schema import PRESETS, FieldSchema, FieldSpec
from glow.text import TermTable, Weighting, WordWeigher
from glow.text.weighting import normalise, soften

IDFS = st.sampled_from(["smooth", "bm25"])
WORDS = st.lists(st.sampled_from(["the", "bee", "home", "rare", "?"]), min_size=1, max_size=12)
COUNTS = {"the": 90, "bee": 12, "home": 30, "?": 70}
AVERAGES = {"query": 4.0, "title": 3.0, "body": 6.0}


def weigher(schema: FieldSchema | None = None, **options: object) -> WordWeigher:
    table = TermTable.from_counts(COUNTS, 100, AVERAGES)
    return WordWeigher(Weighting(**options), schema or PRESETS["glow-default"], table)


def plain_idf(word: str) -> float:
    return 1.0 if word == "?" else math.log(101 / (1 + COUNTS.get(word, 1))) + 1


@given(IDFS, st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 10**9))
def test_idf_falls_as_df_rises(idf: str, documents: int, df: int, other: int) -> None:
    table = TermTable.from_counts({"few": min(df, other), "many": max(df, other)}, documents, {})
    idfs = WordWeigher(Weighting(idf=idf), PRESETS["glow-paper"], table)
    unseen, few, many = (idfs.idf(word) for word in ("unseen", "few", "many"))
    assert math.isfinite(unseen)
    assert unseen >= few >= many >= 0


@pytest.mark.parametrize("idf", ["smooth", "bm25"])
def test_idf_falls_strictly_up_to_half_of_the_documents(idf: str) -> None:
    table = TermTable.from_counts({f"w{df}": df for df in range(1, 51)}, 100, {})
    idfs = WordWeigher(Weighting(idf=idf), PRESETS["glow-paper"], table)
    assert all(more > less for more, less in pairwise([idfs.idf(f"w{df}") for df in range(1, 51)]))


@pytest.mark.parametrize(("idf", "least"), [("smooth", 1.00995), ("bm25", 0.0)])
def test_idf_at_its_ends(idf: str, least: float) -> None:
    """Of most documents; of one, or none; of punctuation, and of an empty table."""
    table = TermTable.from_counts({"the": 99, "once": 1, "?": 99}, 100, {})
    idfs = WordWeigher(Weighting(idf=idf), PRESETS["glow-paper"], table)
    assert idfs.idf("the") == pytest.approx(least, abs=1e-5)
    assert idfs.idf("unseen") == idfs.idf("once") == idfs.idf("x" * 1000) > 4
    assert idfs.idf("?") == idfs.idf("—") == 1.0
    empty = TermTable.from_counts({}, 0, {})
    assert WordWeigher(Weighting(idf=idf), PRESETS["glow-paper"], empty).idf("bee") == round(least)


@given(WORDS)
def test_queries_follow_eq_6(words: Sequence[str]) -> None:
    found = weigher(query_k1=1.5, query_b=0.4).query(words, words)
    saturation = 1.5 * (1 - 0.4 + 0.4 * len(words) / 4.0)
    for word, tf in Counter(words).items():
        assert found.words[word] == pytest.approx(plain_idf(word) * tf / (tf + saturation))
    assert found.cls == found.sep == pytest.approx(1 / (1 + saturation))


@given(WORDS, st.lists(st.sampled_from(["the", "bee", "own"]), max_size=9))
def test_documents_follow_eq_7_and_8(title: Sequence[str], body: Sequence[str]) -> None:
    """One weight a word, from its adjusted counts in all fields; a field without words adds nothing."""
    factors = {"title": (2.0, 0.75), "body": (0.5, 0.3)}
    fields = tuple(FieldSpec(name=n, tokens=9, weight=w, length_norm=f) for n, (w, f) in factors.items())
    schema = FieldSchema(name="two", query_tokens=9, document_tokens=18, fields=fields)
    texts = {"title": title, "body": body}
    found = weigher(schema, document_k1=1.2).document(texts, [*title, *body])
    for word in {*title, *body}:
        atf = sum(
            weight * texts[name].count(word) / (1 + norm * (len(texts[name]) / AVERAGES[name] - 1))
            for name, (weight, norm) in factors.items()
            if texts[name]
        )
        assert found.words[word] == pytest.approx(plain_idf(word) * atf / (1.2 + atf))
    assert found.cls == found.sep == pytest.approx(1 / 2.2)


SIMPLE = {
    "idf": ({word: plain_idf(word) for word in ("the", "bee", "?")}, 1.0),
    "none": ({"the": 1.0, "bee": 1.0, "?": 1.0}, 1.0),
    "stop": ({"the": 0.0, "bee": 1.0, "?": 0.0}, 0.0),  # leaves out what holds sentences together
}
"""Formula -> weights of words, and of [CLS] and [SEP]."""


@pytest.mark.parametrize("formula", SIMPLE)
def test_formulas_without_counts(formula: str) -> None:
    words, (weights, special) = ["the", "bee", "bee", "?"], SIMPLE[formula]
    own = weigher(formula=formula)
    for found in (own.query(words, words), own.document({"title": words}, words)):
        assert found.words == pytest.approx(weights)
        assert (found.cls, found.sep) == (special, special)


@pytest.mark.parametrize("formula", ["paper", "released"])
def test_specials_keep_weight_1_where_saturation_is_off(formula: str) -> None:
    weigh = weigher(formula=formula, saturate_specials=False)
    for found in (weigh.query(["bee"], ["bee"]), weigh.document({"title": ["bee"]}, ["bee"])):
        assert (found.cls, found.sep) == (1.0, 1.0)
        assert found.words["bee"] != 1.0


@given(st.lists(st.floats(0, 100, width=32), min_size=1).map(lambda values: np.array(values, np.float32)))
@example(np.full(7, 4.25, np.float32))
def test_normalisation(weights: np.ndarray) -> None:
    """'mean' has mean 1, 'sqrt' is its root, proportions stay; all zeros stay zeros."""
    mean, root = normalise(weights, "mean"), normalise(weights, "sqrt")
    assert normalise(weights, "none") is weights
    assert mean.dtype == root.dtype == np.float32
    assert np.isfinite(mean).all()
    assert np.isfinite(root).all()
    if weights.any():
        assert mean.mean() == pytest.approx(1.0, abs=1e-4)
        assert mean * weights.mean(dtype=np.float64) == pytest.approx(weights, rel=1e-4)
        assert root**2 == pytest.approx(mean, rel=1e-4)
    else:
        assert not mean.any()
        assert not root.any()


@pytest.mark.parametrize(
    "options",
    [{"query_k1": 0}, {"document_k1": -1}, {"query_b": 1.1}, {"query_k1": float("nan")}, {"formula": "bm11"}],
    ids=str,
)
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Weighting(**options)


@given(st.lists(st.floats(0.0, 50.0, width=32), min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_strength_lies_between_plain_attention_and_the_weights(values: list[float], strength: float) -> None:
    weights = np.array(values, np.float32)
    found = soften(weights, strength)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (1 - strength) + strength * weights, rtol=1e-5, atol=1e-5)
    assert (soften(weights, 0.0) == 1.0).all()
    assert soften(weights, 1.0) is weights
    assert (found >= 0).all()
