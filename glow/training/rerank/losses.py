"""Losses of re-ranker training."""

import torch
from torch import Tensor
from torch.nn import functional

from glow.nn import CrossEncoder, Side

__all__ = ["attention_loss", "distillation_loss", "rerank_loss"]


def rerank_loss(logits: Tensor, kind: str) -> Tensor:
    """The loss of queries whose relevant document is first, a scalar.

    Args:
        logits: float [B, 1 + N].
        kind: `list` or `pairwise`, as `RerankObjective`.
    """
    shares = functional.log_softmax(logits.float(), -1)[:, 0]
    return -shares.mean() if kind == "list" else (1.0 - shares.exp()).mean()


def distillation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """Kullback-Leibler divergence from a teacher's distribution over a query's candidates, averaged over queries, >= 0.

    Args:
        logits, teacher: float [B, 1 + N].
    """
    wanted = functional.log_softmax(teacher.float(), -1)
    found = functional.log_softmax(logits.float(), -1)
    return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


def attention_loss(model: CrossEncoder, query: Side, document: Side) -> Tensor:
    """Mean squared change of the joined layers' attention by the compressor, averaged over layers (Table 1).

    Padding rows and columns do not count (row 30). Gradients reach only the compressor if all else is frozen.

    Args:
        model: a model with a compressor.
        query, document: float [B, L, H], before the compressor.

    Returns:
        A scalar >= 0; 0 for a compressor that changes nothing.
    """
    with torch.no_grad():
        wanted = model.attentions(query, document)
    found = model.attentions(model.through(query), model.through(document))
    mask = torch.cat([query.mask, document.mask], 1)
    real = (mask[:, :, None] & mask[:, None, :])[:, None].expand_as(found[0])  # [B, heads, L, L]
    differences = [(ours.float() - theirs.float())[real] for ours, theirs in zip(found, wanted, strict=True)]
    return torch.stack([(difference**2).mean() for difference in differences]).mean()
