"""Fusion of what is served, and the probabilities of its hits: worked values, and what paging, filters and reasons lean on."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.linear_model import LogisticRegression

from glow.errors import StoreError
from glow.index import (
    DEFAULT_FUSION,
    CalibratedFusion,
    Calibration,
    Fusion,
    FusionWeights,
    Ranking,
    run_all,
    wanted_until,
)
from glow.index.ranking import time_left_s
from glow.records import Hit
from glow.search import (
    Fused,
    Scorer,
    confidence_of,
    contributions,
    fit_logistic,
    fuse,
    fuse_rankings,
    rrf,
    signs_of,
    uncertainty,
)
from glow.search.calibration import probabilities
from glow.search.hybrid import coverage_scorer, lexical_share

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=4)


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    hits = rrf([["a", "b", "c"], [], ["c", "a"]], k=60)
    assert [hit.document_id for hit in hits] == ["a", "c", "b"]
    assert [hit.score for hit in hits] == pytest.approx([1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62], abs=1e-15)
    assert [hit.document_id for hit in rrf([["b", "a"], ["a", "b"]])] == [
        "a",
        "b",
    ]  # ties go to the smaller id
    assert rrf([]) == rrf([[], []]) == []


def test_a_repeated_document_counts_at_its_best_rank_and_moves_nobody() -> None:
    hits = {hit.document_id: hit.score for hit in rrf([["a", "a", "b"]])}
    assert hits == {"a": pytest.approx(1 / 61), "b": pytest.approx(1 / 63)}


def test_the_sum_does_not_depend_on_the_order_of_its_parts() -> None:
    """1/61, 1/62 and 1/67 are three numbers whose plain sum depends on their order in its last bit."""
    rankings = [["a"], ["x", "a"], [*"stuvwx", "a"]]
    scores = {hit.score for some in permutations(rankings) for hit in rrf(some) if hit.document_id == "a"}
    assert len(scores) == 1


@given(RANKINGS, st.randoms())
def test_every_document_comes_once_in_descending_order_whatever_that_of_the_rankings(
    rankings: list[list[str]], random: Any
) -> None:
    hits = rrf(rankings)
    assert sorted(hit.document_id for hit in hits) == sorted({name for each in rankings for name in each})
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    shuffled = list(rankings)
    random.shuffle(shuffled)
    assert rrf(shuffled) == hits


def test_runs_are_fused_query_by_query() -> None:
    one = {"q1": [Hit("a", 9.0), Hit("b", 8.0)], "q2": [Hit("c", 1.0)]}
    fused = fuse([one, {"q3": [Hit("d", 0.5)], "q1": [Hit("b", 0.9)]}], top_k=10, k=1)
    assert list(fused) == ["q1", "q2", "q3"]
    assert fused["q1"] == [Hit("b", pytest.approx(1 / 3 + 1 / 2)), Hit("a", 1 / 2)]
    assert (fused["q2"], fused["q3"]) == ([Hit("c", 0.5)], [Hit("d", 0.5)])


def test_top_k_bounds_what_is_fused_and_what_is_kept() -> None:
    rankings = ("abc", "dca")
    one, two = ({"q": [Hit(name, -float(rank)) for rank, name in enumerate(names)]} for names in rankings)
    # The first is without c, which both have.
    assert [hit.document_id for hit in fuse([one, two], top_k=2)["q"]] == ["a", "d"]
    assert [hit.document_id for hit in fuse([one, two], top_k=3)["q"]] == ["a", "c", "d"]


IDF: Mapping[str, float] = {"bees": 3.0, "honey": 2.0, "home": 1.0, "zyzzyva": 4.0}
HELD = ({"bees", "honey"}, {"home", "the"}, set(), {"bees", "honey", "home"})
ROWS = np.arange(4)


class Words:
    """Documents of `HELD`; any other word is in none."""

    def by_word(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.array([[word in HELD[row] for word in words] for row in rows.tolist()], np.float32)


def covered(*words: str) -> list[float]:
    score = coverage_scorer(Words(), words, lambda word: IDF.get(word, 0.5))  # type: ignore[arg-type]  # what is asked of it
    together = score(ROWS)
    assert [score(ROWS[[row]])[0] for row in ROWS] == together.tolist()
    return [float(each) for each in together]


def test_the_share_of_the_querys_idf() -> None:
    assert covered("bees", "home") == pytest.approx([0.75, 0.25, 0.0, 1.0])
    assert covered("bees", "bees", "home") == pytest.approx([6 / 7, 1 / 7, 0.0, 1.0])
    assert covered("bees", "zyzzyva") == pytest.approx([3 / 7, 0.0, 0.0, 3 / 7])
    # It counts less in a long question.
    assert covered("bees", *["home"] * 15)[0] == pytest.approx((3 / 18) ** 0.5)
    # Stop words count only without other words, and punctuation never.
    assert covered("the", "bees", "?") == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert covered("the", "?") == [0.0, 1.0, 0.0, 0.0]
    assert covered("?") == covered() == [1.0] * 4


def test_lexical_scores_count_by_it_and_stay_what_they_are() -> None:
    dense = np.array([0.5, 0.4], np.float32), np.array([0, 1])
    lexical = np.array([4.0, 2.0], np.float32), np.array([1, 0])
    share = np.array([1.0, 0.25], np.float32)
    given: Any = (DEFAULT_FUSION, dense, lexical)
    fused = fuse_rankings(*given, lexical_scale=4.0, score_covered=lambda rows: share[rows])
    open_by = uncertainty(dense[0])
    expected = {0: 0.55 * 0.5 + 0.45 * open_by * 0.5, 1: 0.55 * 0.4 + 0.45 * open_by * 1.0 * 0.25}
    assert dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True)) == pytest.approx(expected)
    assert dict(zip(fused.rows.tolist(), fused.parts["lexical"].tolist(), strict=True)) == {0: 2.0, 1: 4.0}


DOCUMENTS = 30
RRF = Fusion(method="rrf", weights=FusionWeights(dense=1.0, lexical=1.0))


def ranking(scores: dict[int, float]) -> Ranking:
    """A ranking as a part returns it: best first, ties by row."""
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    rows = np.array([row for row, _ in ranked], np.int64)
    return np.array([score for _, score in ranked], np.float32), rows


def scorer(scores: NDArray[np.float32]) -> Scorer:
    return lambda rows: scores[rows]


def convex(dense: float, lexical: float) -> Fusion:
    return Fusion(method="convex", weights=FusionWeights(dense=dense, lexical=lexical))


def shown(fused: Fused) -> dict[int, float]:
    return dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True))


def test_convex_adds_cosine_and_words_as_far_as_the_vectors_leave_it_open() -> None:
    """Top .9 and last .6: uncertainty 2 * .1 * exp(-.3 / .15); the largest impact is 5."""
    true_dense, true_lexical = np.zeros(5, np.float32), np.zeros(5, np.float32)
    true_dense[[0, 1, 2]] = 0.9, 0.6, -0.2
    true_lexical[[1, 2]] = 6.0, 8.0
    fused = fuse_rankings(
        convex(3, 1),
        ranking({0: 0.9, 1: 0.6}),
        ranking({1: 6.0, 2: 8.0}),
        None,
        scorer(true_dense),
        scorer(true_lexical),
        lexical_scale=5.0,
    )
    words = 0.25 * 0.2 * math.exp(-2) / 5
    expected = {0: 0.75 * 0.9, 1: 0.75 * 0.6 + 6 * words, 2: 0.75 * -0.2 + 8 * words}
    assert shown(fused) == pytest.approx(expected, abs=1e-6)
    assert fused.rows.tolist() == [0, 1, 2]
    assert fused.parts["dense"].tolist() == pytest.approx([0.9, 0.6, -0.2])
    assert fused.parts["lexical"].tolist() == [0.0, 6.0, 8.0]


def test_a_ranking_is_surer_the_nearer_its_first_hit_and_the_farther_the_tenth() -> None:
    def of(*cosines: float) -> float:
        return uncertainty(np.array(cosines, np.float32))

    assert of() == 1.0
    assert of(1.0) == of(1.1, 0.2) == 0.0
    assert of(0.5) == pytest.approx(1.0)
    assert of(0.5, 0.35) == pytest.approx(math.exp(-1), abs=1e-6)
    assert of(*[0.5] * 10, 0.1) == pytest.approx(1.0)  # the eleventh does not count


def test_an_unknown_score_counts_as_the_lowest_candidate_and_is_told_as_unknown() -> None:
    fused = fuse_rankings(convex(1, 1), ranking({0: 0.9, 1: 0.9}), ranking({2: 4.0, 1: 2.0}))
    lexical = 0.5 * 0.2  # the top two are alike, so only their nearness counts
    expected = {0: 0.45 + lexical / 2, 1: 0.45 + lexical / 2, 2: 0.45 + lexical}
    assert shown(fused) == pytest.approx(expected, abs=1e-6)
    known = dict(zip(fused.rows.tolist(), fused.parts["dense"].tolist(), strict=True))
    assert np.isnan(known[2]) and known[0] == pytest.approx(0.9)


@given(
    st.lists(st.integers(0, DOCUMENTS - 1), max_size=20),
    st.lists(st.integers(0, DOCUMENTS - 1), max_size=20),
    st.sampled_from([0, 1, 60]),
)
def test_rrf_of_rows_is_rrf_of_ids(dense: list[int], lexical: list[int], k: int) -> None:
    """The reference: the fusion of any number of rankings; rows come again, lists are empty, ties abound."""
    fusion = RRF.model_copy(update={"k": k})
    both = (dense, lexical)
    parts = [(np.linspace(1, 0.1, len(rows), dtype=np.float32), np.array(rows, np.int64)) for rows in both]
    fused = fuse_rankings(fusion, parts[0], parts[1])
    expected = rrf([[f"{row:02}" for row in rows] for rows in (dense, lexical)], k)
    assert [f"{row:02}" for row in fused.rows.tolist()] == [hit.document_id for hit in expected]
    assert (2 * fused.scores).tolist() == pytest.approx([hit.score for hit in expected], rel=1e-6)


SCORES = st.lists(st.integers(-8, 8), min_size=DOCUMENTS, max_size=DOCUMENTS)


@given(
    SCORES, SCORES, st.integers(0, DOCUMENTS), st.integers(0, DOCUMENTS), st.sampled_from([RRF, convex(2, 1)])
)
def test_every_candidate_comes_once_in_one_order_that_ends_in_the_given_one(
    dense: list[int], lexical: list[int], first: int, second: int, fusion: Fusion
) -> None:
    true = [np.array(values, np.float32) / 8 for values in (dense, lexical)]
    true[1] = np.maximum(true[1], 0)
    parts = [ranking(dict(enumerate(values.tolist()))) for values in true]
    parts = [(scores[:k], rows[:k]) for (scores, rows), k in zip(parts, (first, second), strict=True)]
    order = np.random.default_rng(0).permutation(DOCUMENTS).astype(np.uint32)
    fused = fuse_rankings(fusion, *parts, order, scorer(true[0]), scorer(true[1]), 1.0)  # type: ignore[call-arg]  # the type is what is tested
    assert sorted(fused.rows.tolist()) == sorted({*parts[0][1].tolist(), *parts[1][1].tolist()})
    pairs = zip(fused.scores.tolist(), fused.rows.tolist(), strict=True)
    keys = [(-score, order[row]) for score, row in pairs]
    assert keys == sorted(keys)
    for name, values in zip(("dense", "lexical"), true, strict=True):
        assert fused.parts[name].tolist() == values[fused.rows].tolist()


@given(SCORES, SCORES, st.integers(0, DOCUMENTS))
def test_where_true_scores_are_known_more_lexical_candidates_change_no_score(
    dense: list[int], lexical: list[int], fewer: int
) -> None:
    true = [np.array(values, np.float32) / 8 for values in (dense, lexical)]
    scorers = (scorer(true[0]), scorer(true[1]))
    near, by_words = (ranking(dict(enumerate(values.tolist()))) for values in true)
    near = (near[0][:12], near[1][:12])
    some = fuse_rankings(convex(1, 1), near, (by_words[0][:fewer], by_words[1][:fewer]), None, *scorers, 2.0)
    whole = shown(fuse_rankings(convex(1, 1), near, by_words, None, *scorers, 2.0))
    assert shown(some).items() <= whole.items()


@pytest.mark.parametrize("fusion", [RRF, convex(1, 1)])
def test_nothing_fused_is_nothing_and_one_part_alone_keeps_its_order(fusion: Fusion) -> None:
    nothing = ranking({})
    assert fuse_rankings(fusion, nothing, nothing).rows.tolist() == []
    some = ranking({7: 0.9, 2: 0.5, 4: 0.1})
    assert fuse_rankings(fusion, some, nothing, lexical_scale=0.0).rows.tolist() == [7, 2, 4]
    assert fuse_rankings(fusion, nothing, some).rows.tolist() == [7, 2, 4]


@pytest.mark.parametrize(("dense", "lexical"), [(0, 0), (-1, 1), (1, float("nan")), (1, float("inf"))])
def test_weights_that_weigh_nothing_are_refused(dense: float, lexical: float) -> None:
    with pytest.raises(ValidationError):
        FusionWeights(dense=dense, lexical=lexical)


def test_what_waits_for_a_store_is_asked_at_once() -> None:
    """Each of two scorers returns only when the other has been asked as well."""
    met = threading.Barrier(2, timeout=20)

    def slow(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        met.wait()
        return (rows / 10).astype(np.float32)

    given: Any = (convex(3, 1), ranking({0: 0.9, 1: 0.6}), ranking({1: 6.0, 2: 8.0}), None)
    fuse: Any = fuse_rankings
    at_once = fuse(*given, slow, slow, 5.0, waits=True)
    met = threading.Barrier(1)
    assert shown(at_once) == shown(fuse(*given, slow, slow, 5.0))


def test_calls_at_once_have_the_deadline_and_the_first_failure_counts() -> None:
    def fail(message: str) -> Callable[[], None]:
        def call() -> None:
            raise StoreError(message)

        return call

    with wanted_until(time.perf_counter() + 60):
        left = run_all([time_left_s] * 3, waits=True)
    assert all(50 < each <= 60 for each in left)
    ended = threading.Event()
    with pytest.raises(StoreError, match="first"):
        run_all([fail("first"), fail("second"), lambda: time.sleep(0.1) or ended.set()], waits=True)
    assert ended.is_set()
    with pytest.raises(StoreError, match="second"):
        run_all([ended.is_set, fail("second")], waits=True)


def test_a_repeated_row_counts_at_its_best_place() -> None:
    repeated = np.array([0.9, 0.6, 0.2], np.float32), np.array([4, 7, 4])
    assert shown(fuse_rankings(convex(1, 1), repeated, ranking({}))) == pytest.approx({4: 0.45, 7: 0.3})


def test_rivals_that_a_filter_excludes_have_their_own_evidence() -> None:
    """Openness 2 * .1 * exp(-.1 / .15) from rows 1 and 5; half of each part."""
    fused = fuse_rankings(
        convex(1, 1),
        ranking({3: 0.7}),
        ranking({3: 2.0}),
        None,
        None,
        scorer(np.array([0, 3.0, 0, 2.0, 0, 1.0], np.float32)),
        4.0,
        ranking({1: 0.9, 5: 0.8}),
        scorer(np.full(6, 0.5, np.float32)),
    )
    openness = 0.2 * math.exp(-0.1 / 0.15)

    def evidence(cosine: float, word: float) -> float:
        return 0.5 * cosine + 0.5 * openness / 4 * word * 0.5

    assert fused.openness == pytest.approx(openness, abs=1e-6)
    assert shown(fused) == pytest.approx({3: evidence(0.7, 2.0)}, abs=1e-6)
    assert fused.head is not None
    assert fused.head.tolist() == pytest.approx([evidence(0.9, 3.0), evidence(0.8, 1.0)], abs=1e-6)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("bees", 1.0), ("", 1.0), ("the way bees do", 1.0), ("can opener", 1.0), ("may 2024", 1.0), ("who guidelines", 1.0),
        ("route 66", 1.0), ("how do bees fly", 0.3), ("bees fly home ?", 0.3), ("who wrote it", 0.3),
        ("can bees see red", 0.3), ("bees sleep ?", 0.3), ("SKU-00135", 8.0), ("zz1033", 8.0),
    ],
)  # fmt: skip
def test_terms_count_less_in_a_question_and_more_in_part_numbers(text: str, share: float) -> None:
    assert lexical_share(text.lower().split(), text) == share
    given: Any = (convex(1, 1), ranking({0: 0.9, 1: 0.6}), ranking({1: 6.0, 0: 3.0}))
    whole, less = (fuse_rankings(*given, lexical_share=each) for each in (1.0, share))
    words = [contributions(convex(1, 1), {"dense": 0.6}, shown(each)[1])["words"] for each in (whole, less)]
    assert words[1] == pytest.approx(share * words[0], abs=1e-6) and words[0] > 0


MADE = Calibration(sharpness=50.0, standing=0.5, evidence=3.0, openness=-0.7, constant=-3.0)
EVIDENCE = st.floats(-1, 2, width=32)


@given(st.lists(EVIDENCE, min_size=1, max_size=30), st.lists(EVIDENCE, max_size=10), st.floats(0, 4))
def test_more_evidence_is_never_less_likely_and_others_change_nothing(
    evidence: list[float], head: list[float], openness: float
) -> None:
    hits, near = np.array(evidence, np.float32), np.array(head, np.float32)
    likely = probabilities(MADE, hits, near, openness)
    order = np.argsort(hits, kind="stable")
    assert np.all(np.diff(likely[order]) >= 0) and np.all((likely >= 0) & (likely <= 1))
    alone = [probabilities(MADE, hits[[place]], near, openness)[0] for place in range(len(hits))]
    assert np.array(alone, np.float32).tobytes() == likely.tobytes()
    assert probabilities(MADE, hits, near[::-1].copy(), openness).tobytes() == likely.tobytes()


def test_the_signs_by_hand() -> None:
    head = np.array([0.9, 0.5, 0.4], np.float32)
    found = signs_of(np.array([0.9, 0.45, 0.2], np.float32), head, 0.98, 10.0)
    rivals = (
        math.exp(-4) + math.exp(-5),  # not itself
        math.exp(4.5) + math.exp(0.5),  # in the place of the last
        math.exp(7) + math.exp(3) + math.exp(2),  # below all
    )
    assert found[:, 0] == pytest.approx([-math.log(each + 1e-3) for each in rivals], abs=1e-5)
    assert found[:, 1] == pytest.approx([0.9, 0.45, 0.2])
    assert found[:, 2] == pytest.approx([0.0] * 3, abs=1e-12)
    expected = 1 / (1 + math.exp(-(0.5 * found[1, 0] + 3 * 0.45 - 3)))
    made = MADE.model_copy(update={"sharpness": 10.0})
    assert probabilities(made, np.array([0.45], np.float32), head, 0.98)[0] == pytest.approx(expected)


def test_the_fit_is_that_of_a_library_and_keeps_its_bounds() -> None:
    generator = np.random.default_rng(0)
    signs = generator.standard_normal((600, 3)) * (1, 5, 0.3) + (0, 2, -1)
    answers = generator.random(600) < 1 / (1 + np.exp(-(signs @ (0.8, 0.3, -1.0) - 0.5)))
    weights = generator.random(600) + 0.1
    fitted = fit_logistic(signs, answers, weights)
    library = LogisticRegression(C=1e9, tol=1e-9, max_iter=1000).fit(signs, answers, sample_weight=weights)
    assert fitted == pytest.approx([*library.coef_[0], library.intercept_[0]], rel=1e-3)
    bounded = fit_logistic(signs * (-1, 1, 1), answers, weights)
    assert bounded[0] == 0.0 and bounded[1] > 0
    assert bounded[1:] == pytest.approx(fit_logistic(signs[:, 1:], answers, weights, bounded=(0,)), rel=1e-5)


def test_how_sure_a_first_hit_is() -> None:
    assert confidence_of(0.05, 1.0) == "high"  # it holds all words of the query
    said = [confidence_of(cosine, 0.5) for cosine in (-0.2, 0.15, 0.17, 0.5, 0.56)]
    assert said == ["none", "none", "low", "low", "high"]
    assert confidence_of(float("nan"), 0.5) == "none"


def test_a_calibration_is_of_one_way_to_fuse() -> None:
    made = CalibratedFusion(weights=DEFAULT_FUSION.weights, calibration=MADE)
    assert made.of(DEFAULT_FUSION) is MADE and made.of(Fusion(method="rrf")) is None
    assert made.of(Fusion(weights=FusionWeights(dense=1, lexical=1))) is None
    assert CalibratedFusion().of(DEFAULT_FUSION) is None


@pytest.mark.parametrize(
    "change", [{"sharpness": 0}, {"standing": -1}, {"standing": 0, "evidence": 0}, {"extra": 1}]
)
def test_numbers_that_would_turn_hits_round_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Calibration.model_validate(MADE.model_dump() | change)
