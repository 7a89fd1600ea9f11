"""Ranking and pairs by the cross-sequence attention of Cross-Thought (section 3, Eq. 7, 10 and 11; rows as in docs/papers.md).

B   pairs       Q, D    sequences that ask, that are ranked     L   pieces of a sequence
"""

import torch
from torch import Tensor, nn

from glow.nn import CrossThought

__all__ = ["PairClassifier", "attention_shares", "ranking_loss"]


def attention_shares(logits: Tensor, own: Tensor | None = None) -> Tensor:
    """How a query's attention is shared out over candidates, the mean of all heads and special tokens (Eq. 7).

    Args:
        logits: float [heads, Q, D].
        own: float [heads, Q], the query's logits with itself, which then takes a share of its own, as in pre-training; None masks it,
            since a query is no answer to itself (row 32).

    Returns:
        float [Q, D]; rows sum to 1 without `own`, to less with it.
    """
    if own is None:
        return logits.softmax(-1).mean(0)
    return torch.cat([own[..., None], logits], -1).softmax(-1)[..., 1:].mean(0)


def ranking_loss(logits: Tensor, relevant: Tensor, own: Tensor | None = None) -> Tensor:
    """-log of the relevant candidate's mean share (Eq. 10), mean over queries: a scalar.

    Args:
        logits: float [heads, Q, D]; -inf where a candidate does not count.
        relevant: int64 [Q].
        own: as `attention_shares`.
    """
    shares = attention_shares(logits, own)
    return -shares.gather(1, relevant[:, None]).log().mean()


class PairClassifier(nn.Module):
    """Relation of two sequences, from the cross-sequence layer over the two (Eq. 11).

    Both sequences' states lie side by side, as the paper writes; the released code takes their mean, which cannot tell (a, b) from
    (b, a) (row 35).

    Args:
        model: a pre-trained model, trained further with the head.
        classes: how many relations there are.
    """

    def __init__(self, model: CrossThought, classes: int) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(2 * model.config.specials * model.config.hidden, classes)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Ids int64 and mask bool [2 B, L], the sequences of a pair one after the other -> logits float [B, classes]."""
        specials = self.model.encoder(ids, mask)[:, : self.model.config.specials]
        crossed = self.model.crossed(specials, mask.any(1), 2)
        return self.head(crossed.reshape(len(ids) // 2, -1))  # type: ignore[no-any-return]
