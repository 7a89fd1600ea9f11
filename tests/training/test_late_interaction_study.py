"""The experiments on late interaction: tokens that are kept, what a query finds of them, measures and choices."""

import numpy as np
import pytest

from glow.evaluation import evaluate
from glow.records import Hit, Qrel
from research.candidates import Candidates, Measured, measure
from research.late.ranking import best_setting, left_out
from research.late.states import TokenStates, unit
from research.late.tokens import Form, Projection, best_matches, fit_projection, keep, pool, read_back, weigh

SIZE = 16


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def _tokens(generator: np.random.Generator, count: int) -> np.ndarray:
    return unit(generator.normal(size=(count, SIZE)).astype(np.float32))


def test_pooling_keeps_to_its_budget_and_merges_equals_first(generator: np.random.Generator) -> None:
    tokens = _tokens(generator, 9)
    twice = np.concatenate([tokens, tokens])
    labels = pool(twice, 9)
    assert sorted(set(labels.tolist())) == list(range(9))
    assert np.array_equal(labels[:9], labels[9:])
    assert np.array_equal(pool(tokens, 20), np.arange(9))
    assert len(set(pool(np.repeat(tokens[:1], 5, axis=0), 2).tolist())) == 2


@pytest.mark.parametrize(
    "form",
    [
        Form(),
        Form(8, 1, 4),
        Form(8, 2, 4),
        Form(8, 32, 0),
        Form(8, 1, 0, specials=False),
        Form(8, 1, 0.5, lexical=True),
    ],
)
def test_best_matches_are_those_of_the_vectors_read_back(form: Form, generator: np.random.Generator) -> None:
    states = [_tokens(generator, count) for count in (3, 12)]
    projection = fit_projection(states, [_tokens(generator, 6)])
    documents = [
        TokenStates(each, np.arange(len(each)) == 0, np.arange(len(each)) % 2 == 1) for each in states
    ]
    codes = [keep(form, projection, each) for each in documents]
    query = projection(_tokens(generator, 5), form.size)
    vectors = read_back(form, projection, np.concatenate(codes))
    matches = best_matches(vectors, np.array([0, len(codes[0])]), query)
    naive = [(query @ read_back(form, projection, each).T).max(1) for each in codes]
    assert np.allclose(matches, naive, atol=1e-6)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=2e-3)


def test_all_directions_of_a_projection_leave_cosines_as_they_are(generator: np.random.Generator) -> None:
    tokens = _tokens(generator, 10)
    projection: Projection = fit_projection([tokens], [_tokens(generator, 10)])
    rotated = projection(tokens, SIZE)
    assert np.allclose(rotated @ rotated.T, tokens @ tokens.T, atol=1e-5)


def test_a_score_is_the_weighted_mean_over_the_tokens_of_a_query() -> None:
    matches = np.array([[0.2, 0.4, 0.9]], np.float32)
    weights, specials = np.array([1.0, 3.0, 1.0], np.float32), np.array([False, False, True])
    assert weigh(matches, weights, specials, 0.0, True) == pytest.approx([0.5])
    assert weigh(matches, weights, specials, 1.0, False) == pytest.approx([0.35])
    assert weigh(matches, weights, np.ones(3, np.bool_), 0.0, False) == pytest.approx([0.5])


def test_measures_are_those_of_evaluation_ties_included(generator: np.random.Generator) -> None:
    counts = [30, 7, 12]
    starts = np.concatenate([[0], np.cumsum(counts)])
    total = int(starts[-1])
    grades = (generator.random(total) < 0.2).astype(np.int64)
    scores = generator.integers(0, 8, total).astype(np.float32)
    qrels, run = [], {}
    for query, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        qrels += [Qrel(str(query), str(place), int(grades[place])) for place in range(start, stop)]
        best = sorted(range(start, stop), key=lambda place: (-scores[place], place))
        run[str(query)] = [Hit(str(place), -float(rank)) for rank, place in enumerate(best)]
    found = measure(_candidates(starts, grades), scores)
    expected = evaluate(run, qrels, ("RR@10", "nDCG@10"))
    assert found.rr.mean() == pytest.approx(expected.means["RR@10"])
    assert found.ndcg.mean() == pytest.approx(expected.means["nDCG@10"])


def test_a_collection_has_no_say_in_its_own_weights() -> None:
    def measured(*means: float) -> list[Measured]:
        return [Measured(np.array([mean]), np.array([mean])) for mean in means]

    every = {"a": measured(0.9, 0.1), "b": measured(0.4, 0.5), "c": measured(0.4, 0.6)}
    assert left_out(every) == {"a": 1, "b": 0, "c": 0}
    assert best_setting(every, ["a", "b", "c"]) == 0


def _candidates(starts: np.ndarray, grades: np.ndarray) -> Candidates:
    total = len(grades)
    spans = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    relevant = [min(int(grades[start:stop].sum()), 10) for start, stop in spans]
    nothing = np.zeros(total, np.float32)
    return Candidates(
        name="toy", starts=starts, rows=np.arange(total), order=np.arange(total), grades=grades,
        ideal=np.array([(1 / np.log2(np.arange(2, count + 2))).sum() for count in relevant]),
        cosine=nothing, impacts=nothing, covered=nothing, head=np.zeros((len(relevant), 10), np.float32),
        scale=1.0, more={},
    )  # fmt: skip
