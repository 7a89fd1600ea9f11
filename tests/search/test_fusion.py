"""Reciprocal rank fusion: worked values and the properties that paging and explanation lean on."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.records import Hit
from glow.search import fuse, rrf

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=4)


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    hits = rrf([["a", "b", "c"], ["c", "a"]], k=60)
    assert [hit.document_id for hit in hits] == ["a", "c", "b"]
    assert [hit.score for hit in hits] == pytest.approx([1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62], abs=1e-15)


def test_ties_go_to_the_smaller_id() -> None:
    assert [hit.document_id for hit in rrf([["b", "a"], ["a", "b"]])] == ["a", "b"]


def test_nothing_fused_is_nothing() -> None:
    assert rrf([]) == []
    assert rrf([[], []]) == []


def test_an_empty_ranking_changes_nothing() -> None:
    assert rrf([["a", "b"], []]) == rrf([["a", "b"]])


def test_a_repeated_document_counts_at_its_best_rank_and_moves_nobody() -> None:
    hits = {hit.document_id: hit.score for hit in rrf([["a", "a", "b"]])}
    assert hits == {"a": pytest.approx(1 / 61), "b": pytest.approx(1 / 63)}


def test_the_sum_does_not_depend_on_the_order_of_its_parts() -> None:
    """1/61, 1/62 and 1/67 are three numbers whose plain sum depends on their order in its last bit."""
    rankings = [["a"], ["x", "a"], [*"stuvwx", "a"]]
    scores = {hit.score for some in permutations(rankings) for hit in rrf(some) if hit.document_id == "a"}
    assert len(scores) == 1


@given(RANKINGS, st.randoms())
def test_the_order_of_the_rankings_does_not_matter(rankings: list[list[str]], random: object) -> None:
    shuffled = list(rankings)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert rrf(shuffled) == rrf(rankings)


@given(RANKINGS)
def test_every_document_comes_once_in_descending_order(rankings: list[list[str]]) -> None:
    hits = rrf(rankings)
    found = [hit.document_id for hit in hits]
    assert sorted(found) == sorted({document for ranking in rankings for document in ranking})
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@given(st.lists(st.sampled_from("abcdefgh"), unique=True))
def test_a_single_ranking_keeps_its_order(ranking: list[str]) -> None:
    assert [hit.document_id for hit in rrf([ranking])] == ranking


def test_runs_are_fused_query_by_query() -> None:
    one = {"q1": [Hit("a", 9.0), Hit("b", 8.0)], "q2": [Hit("c", 1.0)]}
    two = {"q3": [Hit("d", 0.5)], "q1": [Hit("b", 0.9)]}
    fused = fuse([one, two], top_k=10, k=1)
    assert list(fused) == ["q1", "q2", "q3"]
    assert fused["q1"] == [Hit("b", pytest.approx(1 / 3 + 1 / 2)), Hit("a", 1 / 2)]
    assert (fused["q2"], fused["q3"]) == ([Hit("c", 0.5)], [Hit("d", 0.5)])


def test_top_k_bounds_what_is_fused_and_what_is_kept() -> None:
    one, two = (
        {"q": [Hit(name, -float(rank)) for rank, name in enumerate(names)]} for names in ("abc", "dca")
    )
    assert [hit.document_id for hit in fuse([one, two], top_k=2)["q"]] == [
        "a",
        "d",
    ]  # without c, which both have
    assert [hit.document_id for hit in fuse([one, two], top_k=3)["q"]] == ["a", "c", "d"]
