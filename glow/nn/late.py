"""Late interaction: every query token's most similar document token, summed up.

Source: ColBERT (Khattab and Zaharia 2020), over PreTTR's stored token embeddings: cheaper than the joined layers, which
correct its score. Departs from it: each query token has a learned weight instead of 1.

    B   pairs       Lq, Ld  tokens of a query, of a document        H   hidden size     p   compared dimensions
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["LateInteraction"]

START_SCALE = 20.0


class LateInteraction(nn.Module):
    """Scores pairs by the similarity of their tokens.

    Args:
        hidden: H.
        size: p.
    """

    def __init__(self, hidden: int, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(hidden, size, bias=False)
        self.importance = nn.Linear(hidden, 1)
        self.scale = nn.Parameter(torch.full((1,), START_SCALE))
        # Orthogonal directions keep angles as well as so few can; all tokens start with the same weight.
        nn.init.orthogonal_(self.project.weight)
        nn.init.zeros_(self.importance.weight)
        nn.init.zeros_(self.importance.bias)

    def forward(self, query: Tensor, query_mask: Tensor, document: Tensor, document_mask: Tensor) -> Tensor:
        """The weighted mean over query tokens of the largest cosine, times the scale.

        Args:
            query, document: float [B, Lq, H] and [B, Ld, H]; a single query is paired with every document.
            query_mask, document_mask: bool [B, Lq] and [B, Ld], True for tokens; at least one each.

        Returns:
            float32 [B].
        """
        ours = functional.normalize(self.project(query).float(), dim=-1)
        theirs = functional.normalize(self.project(document).float(), dim=-1)
        cosines = ours @ theirs.transpose(1, 2)  # [B, Lq, Ld]
        nearest = cosines.masked_fill(~document_mask[:, None, :], -1.0).max(-1).values
        heights = self.importance(query).squeeze(-1).float().masked_fill(~query_mask, -torch.inf)
        return self.scale * (heights.softmax(-1) * nearest).sum(-1)  # type: ignore[no-any-return]
