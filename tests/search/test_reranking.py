"""Re-ranking over an index: the stored states of each hit, both scores together, and hits beyond the depth."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.index import Fusion, Index, RerankWeight
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search import (
    RankedDocuments,
    Reranking,
    attended_words,
    rank_dense,
    rank_hybrid,
    rank_lexical,
    rerank,
    score_unit,
)
from tests.asked import asked_of
from tests.made_index import live

Vector = NDArray[np.float32]
TEXT = "how do bees find the way home by the sun"


@pytest.fixture(scope="module")
def index(rerank_index: Path) -> Index:
    return live(rerank_index)


@pytest.fixture(scope="module")
def vector(index: Index) -> Vector:
    return index.encoder.run([index.preprocessor.query(TEXT)])[0]


def alone(index: Index, row: int) -> float:
    """The score of one document, read now and by itself, from states that nobody stored."""
    assert index.reranker is not None
    stored = index.reranker.documents().read([index[STORED_FIELDS].rows([row])[0]])[0][None]
    mask = np.ones(stored.shape[:2], np.int64)
    return float(index.reranker.score(index.reranker.query(TEXT), stored, mask)[0])


def test_every_hit_has_the_score_of_its_own_document(index: Index, vector: Vector) -> None:
    ranked, is_whole = rerank(index, TEXT, rank_hybrid(index, asked_of(index, TEXT), 50), Reranking(30))
    assert is_whole
    own = [alone(index, row) for row in ranked.rows[:30].tolist()]
    # Four bits a number: near what they were, and far nearer than documents are to one another.
    np.testing.assert_allclose(ranked.parts["rerank"][:30], own, atol=0.35 * float(np.std(own)))
    assert np.corrcoef(ranked.parts["rerank"][:30], own)[0, 1] > 0.98
    assert np.isnan(ranked.parts["rerank"][30:]).all()


def test_the_score_is_the_first_searchs_and_a_share_of_the_re_rankers(index: Index, vector: Vector) -> None:
    first = rank_hybrid(index, asked_of(index, TEXT), 40)
    ranked, _ = rerank(index, TEXT, first, Reranking(20))
    before = dict(zip(first.rows.tolist(), first.scores.tolist(), strict=True))
    own = ranked.parts["rerank"][:20]
    expected = [before[row] + 0.5 * mark for row, mark in zip(ranked.rows[:20].tolist(), own, strict=True)]
    np.testing.assert_allclose(ranked.scores[:20], expected, atol=1e-5)
    assert ranked.rows[:20].tolist() != first.rows[:20].tolist()
    assert sorted(ranked.rows[:20].tolist()) == sorted(first.rows[:20].tolist())


def test_hits_beyond_the_depth_follow_in_order_and_scores_never_rise(index: Index, vector: Vector) -> None:
    first = rank_hybrid(index, asked_of(index, TEXT), 50)
    ranked, _ = rerank(index, TEXT, first, Reranking(10))
    assert ranked.rows[10:].tolist() == first.rows[10:].tolist()
    assert (np.diff(ranked.scores) <= 0).all() and ranked.scores[10] < ranked.scores[9]
    for name, values in first.parts.items():
        told = dict(zip(ranked.rows.tolist(), ranked.parts[name].tolist(), strict=True))
        np.testing.assert_array_equal([told[row] for row in first.rows.tolist()], values)


def test_a_share_of_0_leaves_the_order(index: Index, vector: Vector) -> None:
    first = rank_dense(index, vector, 30)
    ranked, _ = rerank(replace(index, rerank_weight=RerankWeight(share=0.0)), TEXT, first, Reranking(30))
    assert ranked.rows.tolist() == first.rows.tolist()
    np.testing.assert_allclose(ranked.scores, first.scores, atol=1e-6)


def test_where_time_runs_out_what_was_read_comes_first_and_the_first_page_was_read_first(
    index: Index, vector: Vector
) -> None:
    first = rank_hybrid(index, asked_of(index, TEXT), 50)
    whole, _ = rerank(index, TEXT, first, Reranking(10))
    asked: list[bool] = []

    def is_over() -> bool:
        asked.append(True)
        return len(asked) > 1

    ranked, is_whole = rerank(index, TEXT, first, Reranking(50), is_over=is_over)
    assert not is_whole
    assert ranked.rows.tolist() == whole.rows.tolist()
    none, is_whole = rerank(index, TEXT, first, Reranking(50), is_over=lambda: True)
    assert not is_whole and none.rows.tolist() == first.rows.tolist()
    assert np.isnan(none.parts["rerank"]).all()


def test_nothing_found_is_nothing_to_read(index: Index) -> None:
    none = np.empty(0, np.float32)
    nothing = RankedDocuments(none, np.empty(0, np.int64), {"lexical": none}, {})
    ranked, is_whole = rerank(index, TEXT, nothing, Reranking(10))
    assert is_whole and not len(ranked.rows)


def test_points_are_measured_on_the_scale_of_the_first_search(index: Index) -> None:
    assert index.holds(POSTINGS)
    assert score_unit(index, "dense", None) == score_unit(index, "hybrid", None) == 1.0
    assert score_unit(index, "lexical", None) == index[POSTINGS].largest
    assert score_unit(index, "hybrid", Fusion(method="rrf", k=9)) == pytest.approx(0.1)
    ranked, _ = rerank(index, TEXT, rank_lexical(index, TEXT, 20), Reranking(20), unit=2.0)
    own = ranked.parts["rerank"]
    np.testing.assert_allclose(ranked.scores, ranked.parts["lexical"] + 1.0 * own, rtol=1e-5, atol=1e-5)


def test_attention_falls_on_words_of_the_query_and_of_the_hit(index: Index) -> None:
    row = index[STORED_FIELDS].find("toy/0")
    assert row is not None
    (words,) = attended_words(index, TEXT, [row], [None], index[STORED_FIELDS].rows([row]))
    assert {word.word for word in words if word.field == "query"} == set(TEXT.split())
    fields = {word.field for word in words} - {"query"}
    assert fields <= set(index.preprocessor.schema.names) and {"title", "text"} <= fields
    assert "honey" in {word.word for word in words if word.field == "text"}
    assert words[0].attention == max(word.attention for word in words)
    assert 0.3 < sum(word.attention for word in words) <= 1.0
