"""PreTTR's compressor: reduces a token embedding to few numbers and restores it.

Source: PreTTR section 4.2; its released code puts it after layer l, Linear(H, e), GELU, Linear(e, H), LayerNorm, for every
token, including the query's (docs/papers.md 3). The numbers after GELU are stored.

    H   hidden size     e   stored numbers per token
"""

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Compressor"]


class Compressor(nn.Module):
    """Maps token embeddings of H numbers to e numbers and back.

    Args:
        hidden: H.
        size: e.
        eps: of the LayerNorm; BERT's 1e-12.
    """

    def __init__(self, hidden: int, size: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, size)
        self.up = nn.Linear(size, hidden)
        self.norm = nn.LayerNorm(hidden, eps=eps)

    def compress(self, states: Tensor) -> Tensor:
        """Float [..., H] -> float [..., e], each number at least -0.17 (GELU's minimum)."""
        return functional.gelu(self.down(states))

    def restore(self, stored: Tensor) -> Tensor:
        """Float [..., e] -> float [..., H]."""
        return self.norm(self.up(stored))  # type: ignore[no-any-return]

    def forward(self, states: Tensor) -> Tensor:
        """`restore(compress(states))`, float [..., H]."""
        return self.restore(self.compress(states))
