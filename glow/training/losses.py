"""Objectives over a batch of cosines.

Sources: GLOW section 3.8, Eq. 10; the released code's NCE sampling as in docs/papers.md 1.6.

    B           pairs in a batch
    cosines     float [B, B], cos(q_i, d_j); the pairs themselves lie on the diagonal
    blocked     bool [B, B], True where d_j may not serve as a negative of q_i
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["BceObjective", "blocked_negatives", "sample_negatives", "softmax_loss"]


def blocked_negatives(relevant: Tensor, query_cosines: Tensor, query_mask: float) -> Tensor:
    """Which documents of the batch are no negatives of a query.

    Args:
        relevant: bool [B, B], True where d_j is known to answer q_i (the pair itself, the same document,
            an equal document or query text, another judged pair).
        query_cosines: float [B, B], cos(q_i, q_j) of the current model.
        query_mask: above it two queries count as the same question.

    Returns:
        bool [B, B]; the diagonal is always blocked.
    """
    same = torch.eye(len(relevant), dtype=torch.bool, device=relevant.device)
    return relevant | same | (query_cosines.detach() > query_mask)


def sample_negatives(
    cosines: Tensor, blocked: Tensor, inverse_temperature: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draws one in-batch negative a query, the likelier the closer; no gradient flows through the draw.

    Departs from the released code: a query whose whole batch is blocked gets no negative, where the code
    would draw a false one (docs/papers.md, row 15).

    Args:
        cosines, blocked: [B, B].
        inverse_temperature: multiplies the cosines before the softmax, so 1000 is nearly argmax.
        generator: source of randomness.

    Returns:
        Drawn columns int64 [B], and bool [B], False where there was nothing to draw.
    """
    legal = ~blocked.all(1)
    logits = (cosines.detach().float() * inverse_temperature).masked_fill(blocked, -torch.inf)
    logits = logits.masked_fill(~legal[:, None], 0.0)
    return torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1), legal


class BceObjective(nn.Module):
    """Binary cross-entropy of a·cos + c over the given pairs and one sampled negative a query.

    Args:
        scale, shift: a and c at the start.
        learn: whether they are trained.
        nce_weight: share of the sampled part; the given pairs have the rest.
        inverse_temperature: of the sampling.
    """

    def __init__(
        self, scale: float, shift: float, learn: bool, nce_weight: float, inverse_temperature: float
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=learn)
        self.shift = nn.Parameter(torch.tensor(float(shift)), requires_grad=learn)
        self.nce_weight = nce_weight
        self.inverse_temperature = inverse_temperature

    def pairs(self, cosines: Tensor, labels: Tensor) -> Tensor:
        """Eq. 10 for given pairs, mean over them: cosines and labels float [B]."""
        logits = self.scale * cosines + self.shift
        return functional.binary_cross_entropy_with_logits(logits, labels)

    def forward(
        self,
        cosines: Tensor,
        blocked: Tensor,
        labels: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The whole loss, a scalar; `labels` float [B] of the given pairs default to 1."""
        given = cosines.diagonal()
        positive = self.pairs(given, torch.ones_like(given) if labels is None else labels)
        columns, legal = sample_negatives(cosines, blocked, self.inverse_temperature, generator)
        if not bool(legal.any()):
            return positive
        drawn = cosines.gather(1, columns[:, None]).squeeze(1)[legal]
        negative = self.pairs(drawn, torch.zeros_like(drawn))
        return (1.0 - self.nce_weight) * positive + self.nce_weight * negative


def softmax_loss(cosines: Tensor, blocked: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of each pair against the batch's other documents, mean over the queries.

    Args:
        cosines, blocked: [B, B]; blocked documents take no part, the pair itself always does.
        temperature: divides the cosines.
    """
    same = torch.eye(len(cosines), dtype=torch.bool, device=cosines.device)
    logits = (cosines / temperature).masked_fill(blocked & ~same, -torch.inf)
    return functional.cross_entropy(logits, torch.arange(len(cosines), device=cosines.device))
