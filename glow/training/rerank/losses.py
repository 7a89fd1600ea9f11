"""What a re-ranker's training minimises."""

import torch
from torch import Tensor
from torch.nn import functional

from glow.nn import CrossEncoder, Side

__all__ = ["attention_loss", "distillation_loss", "rerank_loss"]


def rerank_loss(logits: Tensor, kind: str) -> Tensor:
    """The loss of queries whose relevant document stands first, a scalar.

    Args:
        logits: float [B, 1 + N].
        kind: `list` or `pairwise`, as `RerankObjective`.
    """
    shares = functional.log_softmax(logits.float(), -1)[:, 0]
    return -shares.mean() if kind == "list" else (1.0 - shares.exp()).mean()


def distillation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """How far the shares of a query's candidates are from a teacher's: Kullback-Leibler divergence, mean over queries, a scalar >= 0.

    Args:
        logits, teacher: float [B, 1 + N].
    """
    wanted = functional.log_softmax(teacher.float(), -1)
    found = functional.log_softmax(logits.float(), -1)
    return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


def attention_loss(model: CrossEncoder, query: Side, document: Side) -> Tensor:
    """What the compressor changes of the joined layers' attention: mean squared difference, mean over layers (Table 1).

    Padding counts neither as a row nor as a column (row 30). Gradients reach the compressor alone where all else is frozen.

    Args:
        model: with a compressor.
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
