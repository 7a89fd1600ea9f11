"""Probabilities of a hybrid search's hits: in order, the same alone or among others, and fitted as a library would."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.linear_model import LogisticRegression

from glow.index import DEFAULT_FUSION, CalibratedFusion, Calibration, Fusion, FusionWeights
from glow.search import confidence_of, fit_logistic, signs_of
from glow.search.calibration import probabilities

MADE = Calibration(sharpness=50.0, standing=0.5, evidence=3.0, openness=-0.7, constant=-3.0)
SCORES = st.floats(-1, 2, width=32)


@given(st.lists(SCORES, min_size=1, max_size=30), st.lists(SCORES, max_size=10), st.floats(0, 4))
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
    "change",
    [{"sharpness": 0}, {"standing": -1}, {"standing": 0, "evidence": 0}, {"extra": 1}],
)
def test_numbers_that_would_turn_hits_round_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Calibration.model_validate(MADE.model_dump() | change)
