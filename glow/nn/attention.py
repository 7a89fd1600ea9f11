"""Global weighted self-attention: attention logits merged with a word's BM25 weight.

Source: GLOW section 3.3, Eq. 2-4 (BISON Eq. 1). Eq. 2 weights the key's column, A_ij = w_j q_i·k_j / sqrt(d); Eq. 4
and the released code weight the row, w_i. Both are offered. Since w_j (q_i·k_j) = q_i·(w_j k_j), scaling K (or Q)
by w before plain attention is exact. So fused kernels apply, and GLOW costs what BERT costs.

Beyond the papers, the form `log` adds g_h log w_j to the logits of head h, which multiplies its attention by
w_j ** g_h: a learned gain g_h per head, 0 for plain attention. `plain` ignores the weights.

    B   sequences       L   tokens      H   hidden size
    n   heads           d   H / n
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.encoders import MIN_WEIGHT, WeightForm, WeightSide


class WeightedSelfAttention(nn.Module):
    """Multi-head self-attention with a global weight per token."""

    def __init__(
        self,
        hidden: int,  # H
        heads: int,  # n; divides H
        weight_side: WeightSide,  # `key` (Eq. 2) or `row` (Eq. 4, the released code)
        dropout: float = 0.0,  # of attention probabilities, in [0, 1)
        form: WeightForm = "multiply",  # how weights merge with logits
        gain: float = 1.0,  # initial gain of every head, for the form `log`
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = hidden // heads
        self.weight_side = weight_side
        self.dropout = dropout
        self.form = form
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)
        # Already in the shape that broadcasts: an exporter folds a reshaped parameter into a constant without a name.
        self.gain = nn.Parameter(torch.full((heads, 1, 1), gain)) if form == "log" else None

    def forward(self, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Attends: `x` and the result float [B, L, H], `weights` float [B, L], >= 0; all ones give plain self-attention.

        `bias`, float [B, 1 or n, 1 or L, L], is added to the logits: `MASKED_LOGIT` or less for padding.
        """
        q, k, v, bias = self._inputs(x, weights, bias)
        if torch.onnx.is_in_onnx_export():
            attended = (q @ k.transpose(-1, -2) + bias).softmax(-1) @ v
        elif x.is_cuda or q.dtype == torch.float32:
            dropout = self.dropout if self.training else 0.0
            attended = functional.scaled_dot_product_attention(q, k, v, bias.to(q.dtype), dropout, scale=1.0)
        else:
            attended = self._written_out(q, k, v, bias)
        return self.output(self._join(attended))  # type: ignore[no-any-return]

    def first_row(self, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Output of `forward` for the first token, float [B, H], computed with only one row of queries."""
        hidden = x.shape[-1]
        matrix, shift = self.qkv.weight, self.qkv.bias
        q = functional.linear(x[:, :1], matrix[:hidden], shift[:hidden])
        k, v = functional.linear(x, matrix[hidden:], shift[hidden:]).chunk(2, dim=-1)
        q, k, v, bias = self._weighted(q, k, v, weights, bias)
        logits = q @ k.transpose(-1, -2) + bias  # [B, n, 1, L]
        attended = self._drop(logits.softmax(-1).to(v.dtype)) @ v
        return self.output(self._join(attended)).squeeze(1)  # type: ignore[no-any-return]

    def probabilities(self, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Attention probabilities float [B, n, L, L]; arguments as `forward`."""
        q, k, _, bias = self._inputs(x, weights, bias)
        return (q @ k.transpose(-1, -2) + bias).softmax(-1)

    def _inputs(self, x: Tensor, weights: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (scaled), keys, values [B, n, L, d], and a term of the logits, [B, 1 or n, 1 or L, L]."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)  # [B, L, H] each
        return self._weighted(q, k, v, weights, bias)

    def _weighted(
        self, q: Tensor, k: Tensor, v: Tensor, weights: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `_inputs`, from projections: q may have only the first tokens."""
        scale = self.head_size**-0.5
        if self.gain is not None:
            bias = bias + self.gain * weights.clamp(min=MIN_WEIGHT).log()[:, None, None, :]
        if self.form != "multiply":
            q = q * scale
        elif self.weight_side == "key":  # one small product carries weight and scale
            k = k * (weights * scale).unsqueeze(-1).to(k.dtype)
        else:
            q = q * (weights[:, : q.shape[1]] * scale).unsqueeze(-1).to(q.dtype)
        return self._split(q), self._split(k), self._split(v), bias

    def _written_out(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Attention in bf16 on a CPU, without the fused kernel, which takes four times as long at head size 32."""
        heads, length = q.shape[1], q.shape[2]
        with torch.autocast(q.device.type, enabled=False):
            flat = bias.to(q.dtype).expand(-1, heads, -1, -1).flatten(0, 1)  # [B n, 1, L]
            logits = torch.baddbmm(flat, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2))
            attended = torch.bmm(self._drop(logits.softmax(-1)), v.flatten(0, 1))
        return attended.reshape(-1, heads, length, self.head_size)

    def _drop(self, probabilities: Tensor) -> Tensor:
        if not self.dropout:
            return probabilities
        return functional.dropout(probabilities, self.dropout, self.training)

    def _split(self, x: Tensor) -> Tensor:
        """[B, L, H] -> [B, n, L, d]."""
        return x.reshape(*x.shape[:2], self.heads, self.head_size).transpose(1, 2)

    def _join(self, x: Tensor) -> Tensor:
        """[B, n, L, d] -> [B, L, H]."""
        return x.transpose(1, 2).flatten(-2)
