"""Ranking and pairs by the attention of Cross-Thought: golden shares, the loss, and the order of a pair."""

import numpy as np
import pytest
import torch

from glow.nn import CrossThought, SentenceConfig
from research.pretraining.crossed import PairClassifier, attention_shares, ranking_loss

# G8: two heads, one query that sees itself and two candidates.
OWN = torch.tensor([[2.0], [0.0]])
CANDIDATES = torch.tensor([[[1.0, 0.0]], [[2.0, 1.0]]])


def test_golden_shares_with_the_query_itself_and_without() -> None:
    """Golden G8: mean attention, and the loss for the first candidate (Eq. 10)."""
    first = torch.tensor([0])
    assert attention_shares(CANDIDATES, OWN).numpy() == pytest.approx(
        np.array([[0.454985, 0.167380]]), abs=1e-6
    )
    assert float(ranking_loss(CANDIDATES, first, OWN)) == pytest.approx(0.787491, abs=1e-6)
    assert attention_shares(CANDIDATES).numpy() == pytest.approx(np.array([[0.731059, 0.268941]]), abs=1e-6)
    assert float(ranking_loss(CANDIDATES, first)) == pytest.approx(0.313262, abs=1e-6)
    assert CANDIDATES.mean(0).numpy() == pytest.approx(np.array([[1.5, 0.5]]))


def test_the_order_of_a_pair_counts() -> None:
    """Row 35: the released mean of both sequences could not tell (a, b) from (b, a)."""
    torch.manual_seed(0)
    config = SentenceConfig(
        vocabulary=50, hidden=16, layers=1, heads=2, intermediate=32, specials=3, positions=40, dropout=0.0
    )
    classifier = PairClassifier(CrossThought(config), 3).eval()
    for parameter in classifier.model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ids, mask = torch.randint(5, 50, (2, 8)), torch.ones(2, 8, dtype=torch.bool)
    assert (classifier(ids, mask) - classifier(ids.flip(0), mask)).abs().max() > 1e-4
