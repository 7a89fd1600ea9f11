"""What a word adds to a document's score, learned over frozen towers: a direction for each word, one for each token, and a gain.

The late interaction of NDRM1 (Conformer-Kernel with query term independence, section 3) in its leanest form: in place of Conformer layers
the document tower's own states, in place of kernels and windows the nearest token. What is kept is that a word's part depends on no other
word, so that it can be worked out when an index is built.

    W   words       N   documents       L   tokens      D   hidden size     K   dimensions of a direction
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MEAN_IDF", "TermImpacts"]

START_SLOPE, START_CUT, START_GAIN, START_IDF, START_BM25 = 5.0, 0.1, 0.5, 0.1, 0.3
MEAN_IDF = 5.0
"""About which a gain rises with idf."""


class TermImpacts(nn.Module):
    """The head.

    Args:
        hidden: D of both towers.
        dimensions: K.
    """

    def __init__(self, hidden: int, dimensions: int) -> None:
        super().__init__()
        self.word = nn.Linear(hidden, dimensions)
        self.token = nn.Linear(hidden, dimensions)
        self.gain = nn.Linear(hidden, 1)
        self.gain_idf = nn.Parameter(torch.tensor(START_IDF))
        self.slope = nn.Parameter(torch.tensor(START_SLOPE))
        self.cut = nn.Parameter(torch.tensor(START_CUT))
        self.bm25_logit = nn.Parameter(torch.tensor(START_BM25))
        # Both towers share a space: words and tokens start from the same directions in it.
        nn.init.orthogonal_(self.token.weight)
        with torch.no_grad():
            self.word.weight.copy_(self.token.weight)
        for part in (self.word, self.token):
            nn.init.zeros_(part.bias)
        nn.init.zeros_(self.gain.weight)
        nn.init.constant_(self.gain.bias, START_GAIN)

    @property
    def bm25_weight(self) -> Tensor:
        """What an impact of BM25 counts beside learned ones, a scalar > 0."""
        return functional.softplus(self.bm25_logit)

    def words(self, vectors: Tensor, idf: Tensor) -> tuple[Tensor, Tensor]:
        """Directions float [W, K] and gains float [W] of words.

        Args:
            vectors: float [W, D], of the query tower for each word alone.
            idf: float [W].
        """
        gains = functional.softplus(self.gain(vectors)[:, 0] + self.gain_idf * (idf - MEAN_IDF))
        return functional.normalize(self.word(vectors), dim=-1), gains

    def tokens(self, states: Tensor) -> Tensor:
        """Last hidden states of the document tower, float [..., L, D] -> directions float [..., L, K]."""
        return functional.normalize(self.token(states), dim=-1)

    def forward(self, words: Tensor, gains: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Learned impacts, float [W, N], >= 0, in a unit in which BM25's count `bm25_weight` each.

        Args:
            words, gains: as `words` gives them.
            tokens: float [N, L, K].
            mask: bool [N, L], True for tokens that may speak for a word; at least one a document.
        """
        cosines = torch.einsum("wk,nlk->wnl", words, tokens).masked_fill(~mask, -1.0)
        return functional.relu(self.slope * (cosines.amax(-1) - self.cut)) * gains[:, None]
