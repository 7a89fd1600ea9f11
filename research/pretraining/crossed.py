"""Ranking and pair classification by Cross-Thought's cross-sequence attention (Eq. 7, 10, 11; docs/papers.md).

B   pairs       Q, D    query sequences, ranked sequences       L   tokens of a sequence
"""

import torch
from torch import Tensor, nn

from glow.nn import CrossThought

__all__ = ["PairClassifier", "attention_shares", "ranking_loss"]


def attention_shares(logits: Tensor, own: Tensor | None = None) -> Tensor:
    """A query's attention over candidates, averaged over heads and special tokens (Eq. 7).

    Args:
        logits: float [heads, Q, D].
        own: float [heads, Q], the query's logits with itself, which then takes attention, as in pre-training; None
            masks it, because a query is not relevant to itself (row 32).

    Returns:
        float [Q, D]; rows sum to 1 without `own`, and to less with it.
    """
    if own is None:
        return logits.softmax(-1).mean(0)
    return torch.cat([own[..., None], logits], -1).softmax(-1)[..., 1:].mean(0)


def ranking_loss(logits: Tensor, relevant: Tensor, own: Tensor | None = None) -> Tensor:
    """-log of the relevant candidate's mean attention (Eq. 10), averaged over queries: a scalar.

    Args:
        logits: float [heads, Q, D]; -inf for excluded candidates.
        relevant: int64 [Q].
        own: as `attention_shares`.
    """
    shares = attention_shares(logits, own)
    return -shares.gather(1, relevant[:, None]).log().mean()


class PairClassifier(nn.Module):
    """Classifies the relation of two sequences by the cross-sequence layer over both (Eq. 11).

    Both sequences' states are concatenated as in the paper; the released code takes their mean, which cannot distinguish
    (a, b) from (b, a) (row 35).

    Args:
        model: a pre-trained model, which is fine-tuned with the head.
        classes: number of relations.
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
