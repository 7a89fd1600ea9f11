"""Global weighted self-attention: attention logits multiplied by a word's BM25 weight.

Source: GLOW section 3.3, Eq. 2-4 (BISON Eq. 1). Eq. 2 weights the key's column, A_ij = w_j q_i·k_j / sqrt(d); Eq. 4
and the released code weight the row, w_i. Both are offered. Since w_j (q_i·k_j) = q_i·(w_j k_j), scaling K (or Q)
by w and then attending as usual is exact, so fused kernels apply and GLOW costs what BERT costs.

    B   sequences       L   tokens      H   hidden size
    n   heads           d   H / n
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MASKED_LOGIT", "WeightSide", "WeightedSelfAttention", "weighted_attention"]

WeightSide = Literal["key", "row"]
MASKED_LOGIT = -10_000.0
"""Added to the logits of padded keys after weighting, as in BERT; softmax gives them exactly 0 in fp32."""


def weighted_attention(
    q: Tensor, k: Tensor, v: Tensor, weights: Tensor, mask: Tensor, weight_side: WeightSide
) -> tuple[Tensor, Tensor]:
    """Attention as the paper writes it out: softmax(W * QK^T / sqrt(d) + mask) V.

    Args:
        q, k, v: float [B, n, L, d].
        weights: float [B, L], >= 0.
        mask: bool [B, L], True for tokens.
        weight_side: whether weights multiply columns (`key`) or rows (`row`) of the logits.

    Returns:
        Output float [B, n, L, d] and attention probabilities float [B, n, L, L].
    """
    logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    logits = logits * (weights[:, None, None, :] if weight_side == "key" else weights[:, None, :, None])
    logits = logits + (~mask[:, None, None, :]) * MASKED_LOGIT
    probabilities = logits.softmax(-1)
    return probabilities @ v, probabilities


class WeightedSelfAttention(nn.Module):
    """Multi-head self-attention with a global weight a token.

    Args:
        hidden: H.
        heads: n; divides H.
        weight_side: `key` (Eq. 2) or `row` (Eq. 4, the released code).
        dropout: of attention probabilities, in [0, 1).
    """

    def __init__(self, hidden: int, heads: int, weight_side: WeightSide, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = hidden // heads
        self.weight_side = weight_side
        self.dropout = dropout
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Attends.

        Args:
            x: float [B, L, H].
            weights: float [B, L], >= 0; all ones give plain self-attention.
            bias: float [B, 1, 1, L], 0 for tokens and `MASKED_LOGIT` for padding.

        Returns:
            float [B, L, H].
        """
        q, k, v = self.qkv(x).chunk(3, dim=-1)  # [B, L, H] each
        if torch.onnx.is_in_onnx_export():
            scale = weights * self.head_size**-0.5  # one small product in place of two large ones
            q, k, v = (self._split(part) for part in self._weigh(q, k, v, scale))
            attended = (q @ k.transpose(-1, -2) + bias).softmax(-1) @ v
        else:
            q, k, v = (self._split(part) for part in self._weigh(q, k, v, weights))  # [B, n, L, d]
            dropout = self.dropout if self.training else 0.0
            attended = functional.scaled_dot_product_attention(q, k, v, bias.to(q.dtype), dropout)
        return self.output(self._join(attended))  # type: ignore[no-any-return]

    def _weigh(self, q: Tensor, k: Tensor, v: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scales keys or queries, float [B, L, H], by `scale`, float [B, L]."""
        scale = scale.unsqueeze(-1)
        return (q, k * scale, v) if self.weight_side == "key" else (q * scale, k, v)

    def _split(self, x: Tensor) -> Tensor:
        """[B, L, H] -> [B, n, L, d]."""
        return x.reshape(*x.shape[:2], self.heads, self.head_size).transpose(1, 2)

    def _join(self, x: Tensor) -> Tensor:
        """[B, n, L, d] -> [B, L, H]."""
        return x.transpose(1, 2).flatten(-2)
