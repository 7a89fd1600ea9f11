"""Ranking by the attention of Cross-Thought: golden shares."""

import numpy as np
import pytest
import torch

from research.pretraining import attention_shares

# G8: two heads, one query that sees itself and two candidates.
OWN = torch.tensor([[2.0], [0.0]])
CANDIDATES = torch.tensor([[[1.0, 0.0]], [[2.0, 1.0]]])


def test_golden_shares_with_the_query_itself_and_without() -> None:
    """Golden G8: mean attention (Eq. 7)."""
    assert attention_shares(CANDIDATES, OWN).numpy() == pytest.approx(
        np.array([[0.454985, 0.167380]]), abs=1e-6
    )
    assert attention_shares(CANDIDATES).numpy() == pytest.approx(np.array([[0.731059, 0.268941]]), abs=1e-6)
    assert CANDIDATES.mean(0).numpy() == pytest.approx(np.array([[1.5, 0.5]]))
