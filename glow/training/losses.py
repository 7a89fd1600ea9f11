"""Objectives over a batch of cosines.

Sources: GLOW section 3.8, Eq. 10; the released code's NCE sampling as in docs/papers.md 1.6.

    B           pairs in a batch
    M           documents in it: those of the pairs, then mined hard negatives if there are any
    cosines     float [B, M], cos(q_i, d_j); the pairs are on the diagonal
    blocked     bool [B, M], True where d_j may not serve as a negative of q_i
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "BceObjective", "blocked_negatives", "embedding_loss", "list_loss", 
    "sample_negatives", "softmax_loss",
]  # fmt: skip


def blocked_negatives(relevant: Tensor, query_cosines: Tensor, query_mask: float) -> Tensor:
    """Marks the documents of the batch that cannot serve as negatives of a query.

    Args:
        relevant: bool [B, M], True if d_j is known to be relevant to q_i (the pair itself, the same document,
            an equal document or query text, another judged pair).
        query_cosines: float [B, B], cos(q_i, q_j) of the current model.
        query_mask: two queries with a higher cosine count as the same question.

    Returns:
        bool [B, M]; the diagonal is always blocked.
    """
    blocked = relevant.clone()
    pairs = blocked[:, : len(relevant)]
    pairs |= query_cosines.detach() > query_mask
    pairs.fill_diagonal_(True)
    return blocked


def sample_negatives(
    cosines: Tensor, blocked: Tensor, inverse_temperature: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draws one in-batch negative per query, close ones more likely; no gradient flows through the draw.

    This differs from the released code: a query whose whole batch is blocked gets no negative, while the code
    would draw a false one (docs/papers.md, row 15).

    Args:
        cosines, blocked: [B, M].
        inverse_temperature: multiplies the cosines before the softmax, so 1000 is nearly argmax.
        generator: source of randomness.

    Returns:
        Drawn columns int64 [B], and bool [B], False if there was nothing to draw.
    """
    legal = ~blocked.all(1)
    logits = (cosines.detach().float() * inverse_temperature).masked_fill(blocked, -torch.inf)
    logits = logits.masked_fill(~legal[:, None], 0.0)
    return torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1), legal


class BceObjective(nn.Module):
    """Binary cross-entropy of a·cos + c over the given pairs and one sampled negative per query.

    Args:
        scale, shift: initial a and c.
        learn: whether they are trained.
        nce_weight: weight of the sampled part; the given pairs have 1 minus it.
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
        """Mean of Eq. 10 over given pairs; cosines and labels are float [B]."""
        logits = self.scale * cosines + self.shift
        return functional.binary_cross_entropy_with_logits(logits, labels)

    def forward(
        self,
        cosines: Tensor,
        blocked: Tensor,
        labels: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The whole loss, a scalar; `labels` float [B] of the given pairs default to 1.

        Mined negatives are given pairs of label 0, with the same total weight as the positives; the papers over-sample
        positives to equal numbers. The draw excludes the negatives of the query itself and of pairs that are blocked for
        it, as the released code does with the rows of similar queries (docs/papers.md 1.6).
        """
        given = cosines.diagonal()
        positive = self.pairs(given, torch.ones_like(given) if labels is None else labels)
        mined = _mined(cosines, blocked)
        if len(mined):
            positive = 0.5 * (positive + self.pairs(mined, torch.zeros_like(mined)))
        undrawn = _undrawn(blocked)
        columns, legal = sample_negatives(cosines, undrawn, self.inverse_temperature, generator)
        if not bool(legal.any()):
            return positive
        drawn = cosines.gather(1, columns[:, None]).squeeze(1)[legal]
        negative = self.pairs(drawn, torch.zeros_like(drawn))
        return (1.0 - self.nce_weight) * positive + self.nce_weight * negative


def _mined(cosines: Tensor, blocked: Tensor) -> Tensor:
    """Cosines of each query with its mined negatives that are not relevant, float [m]."""
    pairs, documents = cosines.shape
    each = (documents - pairs) // pairs
    own = torch.arange(pairs, documents, device=cosines.device).reshape(pairs, each)
    return cosines.gather(1, own)[~blocked.gather(1, own)]


def _undrawn(blocked: Tensor) -> Tensor:
    """Documents that the draw excludes, bool [B, M]: if pair j is blocked, so are the documents mined for it.

    In the released code a mined negative is a separate row, masked by its query like every other row. Without this, a
    draw that is almost argmax takes the query's own mined negative each time, and counts it twice.
    """
    pairs, documents = blocked.shape
    of_pairs = blocked[:, :pairs]
    mined = of_pairs.repeat_interleave((documents - pairs) // pairs, dim=1)
    return blocked | torch.cat([of_pairs, mined], dim=1)


def softmax_loss(cosines: Tensor, blocked: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of each pair against the batch's other documents, averaged over queries.

    Args:
        cosines, blocked: [B, M]; blocked documents are excluded, except the pair itself.
        temperature: divides the cosines.
    """
    same = torch.eye(*cosines.shape, dtype=torch.bool, device=cosines.device)
    logits = (cosines / temperature).masked_fill(blocked & ~same, -torch.inf)
    return functional.cross_entropy(logits, torch.arange(len(cosines), device=cosines.device))


def embedding_loss(vectors: Tensor, wanted: Tensor) -> Tensor:
    """Mean of 1 - cosine to a teacher's vectors, both float [n, H], L2-normalized."""
    return (1.0 - (vectors * wanted).sum(-1)).mean()


def list_loss(cosines: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Divergence KL(teacher || student) of the softmax over the batch's documents, averaged over queries.

    Args:
        cosines, wanted: [B, M] of student and teacher; nothing is blocked, because the teacher judges.
        temperature: divides both.
    """
    logits = (cosines / temperature).log_softmax(-1)
    return functional.kl_div(
        logits, (wanted / temperature).log_softmax(-1), log_target=True, reduction="batchmean"
    )
