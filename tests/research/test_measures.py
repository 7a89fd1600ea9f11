"""Measures over candidates."""

import numpy as np
import pytest

from glow.evaluation import evaluate
from glow.records import Hit, Qrel
from research.candidates import Candidates, measure


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(7)


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
