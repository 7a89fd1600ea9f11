"""Objectives against the golden numbers G6 and their edge cases."""

import math

import pytest
import torch

from glow.training.run import learning_rate
from glow.training.tower_loss import (
    BceObjective,
    blocked_negatives,
    embedding_loss,
    list_loss,
    sample_negatives,
    softmax_loss,
)

NOTHING = torch.zeros(2, 2, dtype=torch.bool)


def objective(**changes: float) -> BceObjective:
    options = {"scale": 1.0, "shift": 0.0, "learn": True, "nce_weight": 0.5, "inverse_temperature": 1000.0}
    return BceObjective(**{**options, **changes})  # type: ignore[arg-type]


def test_g6_bce_of_given_and_sampled_pairs() -> None:
    """G6: cos .8/y1 and .1/y0 give .557749; sampled .4 and .2 give .855577; half of each .706663."""
    bce = objective()
    given = bce.pairs(torch.tensor([0.8, 0.1]), torch.tensor([1.0, 0.0]))
    sampled = bce.pairs(torch.tensor([0.4, 0.2]), torch.zeros(2))
    assert given.item() == pytest.approx(0.557749, abs=1e-5)
    assert sampled.item() == pytest.approx(0.855577, abs=1e-5)
    cosines = torch.tensor([[0.8, 0.4], [0.2, 0.1]])
    blocked = blocked_negatives(NOTHING, torch.eye(2), 0.9)
    loss = bce(cosines, blocked, labels=torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx(0.706663, abs=1e-5)


@pytest.mark.parametrize(
    ("inverse_temperature", "second", "expected"),
    [(1000.0, False, (0.268941, 0.731059)), (10.0, False, (0.4975, 0.5025)), (1000.0, True, (0.0, 1.0))],
)
def test_g6_sampling_probabilities(
    inverse_temperature: float, second: bool, expected: tuple[float, float]
) -> None:
    """G6: own .9, others .300 and .301; a query of cosine .95 to the first is masked."""
    cosines = torch.tensor([0.9, 0.300, 0.301]).expand(20_000, 3)
    blocked = torch.tensor([True, second, False]).expand(20_000, 3)
    drawn, legal = sample_negatives(cosines, blocked, inverse_temperature, torch.Generator().manual_seed(0))
    assert legal.all()
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    assert shares[0] == 0.0
    torch.testing.assert_close(shares[1:], torch.tensor(expected), atol=0.015, rtol=0.0)


@pytest.mark.parametrize(
    ("relevant", "query_cosines", "mask", "blocked"),
    [
        # Near-duplicate queries are no negatives of each other.
        (torch.zeros(3, 3), [[1.0, 0.95, 0.2], [0.95, 1.0, 0.9], [0.2, 0.9, 1.0]], 0.9, [[1, 1, 0], [1, 1, 0], [0, 0, 1]]),
        # A mask of 1 takes no two queries for one question, and a cosine of a query to itself may round below it.
        (torch.zeros(2, 2), [[0.99, 0.99], [0.99, 0.99]], 1.0, [[1, 0], [0, 1]]),
        # Known relevant documents are no negatives.
        (torch.tensor([[0, 1], [0, 0]]), [[1.0, 0.0], [0.0, 1.0]], 0.9, [[1, 1], [0, 1]]),
    ],
)  # fmt: skip
def test_pairs_that_may_be_relevant_are_blocked(
    relevant: torch.Tensor, query_cosines: list[list[float]], mask: float, blocked: list[list[int]]
) -> None:
    assert blocked_negatives(relevant.bool(), torch.tensor(query_cosines), mask).int().tolist() == blocked


def test_a_batch_of_one_has_the_bce_part_only() -> None:
    """The released code would draw the pair's own document as its negative."""
    bce = objective()
    cosines = torch.tensor([[0.8]])
    loss = bce(cosines, blocked_negatives(torch.zeros(1, 1, dtype=torch.bool), cosines, 0.9))
    assert loss.item() == pytest.approx(bce.pairs(torch.tensor([0.8]), torch.ones(1)).item())


def test_no_gradient_flows_through_the_draw_but_through_the_drawn_cosine() -> None:
    cosines = torch.tensor([[0.8, 0.4], [0.2, 0.9]], requires_grad=True)
    objective()(cosines, blocked_negatives(NOTHING, torch.eye(2), 0.9)).backward()
    assert cosines.grad is not None
    assert (cosines.grad.diagonal() < 0).all()  # pairs are drawn together
    assert (cosines.grad.flip(0).diagonal() > 0).all()  # negatives are pushed apart


def test_fixed_scale_and_shift_are_not_trained() -> None:
    assert not any(parameter.requires_grad for parameter in objective(learn=False).parameters())
    assert all(parameter.requires_grad for parameter in objective().parameters())


def test_softmax_loss_is_cross_entropy_and_leaves_blocked_documents_out() -> None:
    cosines = torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.8, 0.7], [0.3, 0.3, 0.6]])
    nothing = torch.zeros(3, 3, dtype=torch.bool)
    expected = torch.nn.functional.cross_entropy(cosines / 0.1, torch.arange(3))
    torch.testing.assert_close(softmax_loss(cosines, nothing, 0.1), expected)
    blocked = nothing.clone()
    blocked[1, 2] = True
    changed = cosines.clone()
    changed[1, 2] = 0.99
    torch.testing.assert_close(softmax_loss(cosines, blocked, 0.1), softmax_loss(changed, blocked, 0.1))


def test_a_batch_of_equal_queries_gives_a_finite_loss() -> None:
    cosines = torch.full((4, 4), 0.7)
    blocked = torch.ones(4, 4, dtype=torch.bool)
    assert softmax_loss(cosines, blocked, 0.05).item() == pytest.approx(0.0)
    assert torch.isfinite(objective()(cosines, blocked))


@pytest.mark.parametrize(("step", "rate"), [(50, 4e-5), (99, 7.92e-5), (100, 8e-5), (550, 4e-5), (1000, 0.0)])
def test_g6_learning_rate(step: int, rate: float) -> None:
    """G6: base 8e-5, 100 of 1000 steps of warm-up."""
    assert learning_rate(step, 1000, 8e-5, 0.1) == pytest.approx(rate, abs=1e-12)


def test_mined_negatives_count_as_much_as_positives_in_the_bce() -> None:
    """Column 2 is query 0's mined document, column 3 query 1's, which answers it after all and is left out."""
    cosines = torch.tensor([[0.8, 0.1, 0.5, 0.2], [0.1, 0.7, 0.3, 0.9]])
    relevant = torch.zeros(2, 4, dtype=torch.bool)
    relevant[1, 3] = True
    bce = objective(nce_weight=0.0)
    loss = bce(cosines, blocked_negatives(relevant, torch.eye(2), 0.9))
    positives = bce.pairs(torch.tensor([0.8, 0.7]), torch.ones(2))
    mined = bce.pairs(torch.tensor([0.5]), torch.zeros(1))
    assert loss.item() == pytest.approx(0.5 * (positives.item() + mined.item()))


NEAR = torch.tensor([[1.0, 0.95, 0.2], [0.95, 1.0, 0.2], [0.2, 0.2, 1.0]])
WITH_MINED = torch.tensor(
    [[0.8, 0.1, 0.3, 0.9, 0.7, 0.2], [0.1, 0.8, 0.1, 0.7, 0.9, 0.3], [0.2, 0.1, 0.8, 0.6, 0.1, 0.9]]
)
"""Columns 3 to 5 were mined for queries 0 to 2."""


def test_a_draw_takes_no_document_mined_for_the_query_or_one_like_it() -> None:
    """Rows 0 and 1 are one question: columns 0, 1, 3 and 4 are out. Row 2 may draw column 3, mined for row 0."""
    bce = objective(nce_weight=1.0)
    blocked = blocked_negatives(torch.zeros(3, 6, dtype=torch.bool), NEAR, 0.9)
    drawn = bce.pairs(torch.tensor([0.3, 0.3, 0.6]), torch.zeros(3))
    assert bce(WITH_MINED, blocked).item() == pytest.approx(drawn.item())


def test_several_mined_documents_of_a_pair_are_masked_together() -> None:
    """Two a query, so columns 2 and 3 are query 0's and columns 4 and 5 query 1's."""
    cosines = torch.tensor([[0.9, 0.1, 0.8, 0.8, 0.2, 0.5], [0.1, 0.9, 0.2, 0.4, 0.8, 0.8]])
    bce = objective(nce_weight=1.0)
    loss = bce(cosines, blocked_negatives(torch.zeros(2, 6, dtype=torch.bool), torch.eye(2), 0.9))
    assert loss.item() == pytest.approx(bce.pairs(torch.tensor([0.5, 0.4]), torch.zeros(2)).item())


def test_a_single_pair_with_a_mined_document_has_nothing_to_draw() -> None:
    bce = objective()
    cosines = torch.tensor([[0.8, 0.6]])
    loss = bce(cosines, blocked_negatives(torch.zeros(1, 2, dtype=torch.bool), torch.ones(1, 1), 0.9))
    given = [bce.pairs(torch.tensor([c]), torch.tensor([y])).item() for c, y in ((0.8, 1.0), (0.6, 0.0))]
    assert loss.item() == pytest.approx(sum(given) / 2)


def test_the_softmax_sees_a_query_s_own_mined_documents() -> None:
    blocked = blocked_negatives(torch.zeros(3, 6, dtype=torch.bool), torch.eye(3), 0.9)
    assert not blocked[:, 3:].any()
    changed = WITH_MINED.clone()
    changed[0, 3] = 0.0
    assert softmax_loss(changed, blocked, 0.1).item() < softmax_loss(WITH_MINED, blocked, 0.1).item()


def test_a_student_that_equals_its_teacher_has_nothing_to_learn() -> None:
    cosines = torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.8, 0.7]])
    other = cosines.flip(1)
    vectors = torch.nn.functional.normalize(
        torch.randn(4, 8, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    assert embedding_loss(vectors, vectors).item() == pytest.approx(0.0, abs=1e-6)
    assert embedding_loss(vectors, -vectors).item() == pytest.approx(2.0)
    assert list_loss(cosines, cosines, 0.05).item() == pytest.approx(0.0, abs=1e-6)
    assert list_loss(cosines, other, 0.05).item() > 0.0


def test_list_loss_is_the_divergence_of_two_softmaxes() -> None:
    cosines, wanted = torch.tensor([[0.1, 0.0], [0.2, 0.0]]), torch.tensor([[0.0, 0.1], [0.3, 0.0]])
    p, q = (wanted / 0.1).softmax(1), (cosines / 0.1).softmax(1)
    mean = float((p * (p / q).log()).sum(1).mean())
    assert list_loss(cosines, wanted, 0.1).item() == pytest.approx(mean, abs=1e-6)
    one_sided = list_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.1 * math.log(3)]]), 0.1)
    assert one_sided.item() == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5), abs=1e-6)
