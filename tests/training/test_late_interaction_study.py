"""Studies of ranking: measures over candidates, and the directions of token states."""

import numpy as np
import pytest

from glow.evaluation import evaluate
from glow.records import Hit, Qrel
from research.candidates import Candidates, measure
from research.late.directions import directions_of

SIZE = 16


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def test_directions_are_those_in_which_the_states_of_both_towers_are_longest(
    generator: np.random.Generator,
) -> None:
    """Against a loop; all of them leave cosines as they are. A tower with ten times the tokens has no more say."""
    long, short = (generator.normal(size=(count, SIZE)).astype(np.float32) for count in (100, 10))
    directions = directions_of([[long], [short]])
    moments = [sum(np.outer(row, row) for row in each) / len(each) for each in (long, short)]
    lengths = [float(column @ (moments[0] + moments[1]) @ column) for column in directions.T]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == pytest.approx(np.linalg.norm(moments[0] + moments[1], 2), rel=1e-4)
    rotated = long @ directions
    assert np.allclose(rotated @ rotated.T, long @ long.T, atol=1e-3)


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
