"""Learned sparse retrieval: a head over frozen towers that gives each word a direction and a gain, and each token a direction.

The late interaction of NDRM1 (Conformer-Kernel with query term independence, section 3), simplified: the document tower's token
embeddings replace Conformer layers, the nearest token replaces kernels and windows. As in NDRM1, a word's impact depends on no
other word, so a build can compute it.

    W   words       N   documents       L   tokens      D   hidden size     K   dimensions of a direction
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

START_SLOPE, START_CUT, START_GAIN, START_IDF, START_BM25 = 5.0, 0.1, 0.5, 0.1, 0.3
MEAN_IDF = 5.0
"""The idf at which the idf term of a gain is 0."""


class TermImpacts(nn.Module):
    """The head that computes learned impacts, of D `hidden` and K `dimensions`."""

    def __init__(self, hidden: int, dimensions: int) -> None:
        super().__init__()
        self.word = nn.Linear(hidden, dimensions)
        self.token = nn.Linear(hidden, dimensions)
        self.gain = nn.Linear(hidden, 1)
        self.gain_idf = nn.Parameter(torch.tensor(START_IDF))
        self.slope = nn.Parameter(torch.tensor(START_SLOPE))
        self.cut = nn.Parameter(torch.tensor(START_CUT))
        self.bm25_logit = nn.Parameter(torch.tensor(START_BM25))
        # Both towers share a space, so words and tokens start with the same projection.
        nn.init.orthogonal_(self.token.weight)
        with torch.no_grad():
            self.word.weight.copy_(self.token.weight)
        for part in (self.word, self.token):
            nn.init.zeros_(part.bias)
        nn.init.zeros_(self.gain.weight)
        nn.init.constant_(self.gain.bias, START_GAIN)

    @property
    def bm25_weight(self) -> Tensor:
        """Weight of a BM25 impact beside learned ones, a scalar > 0."""
        return functional.softplus(self.bm25_logit)

    def words(self, vectors: Tensor, idf: Tensor) -> tuple[Tensor, Tensor]:
        """Directions float [W, K] and gains float [W] of words, from the query tower's vector of each alone, float [W, D], and idf."""
        gains = functional.softplus(self.gain(vectors)[:, 0] + self.gain_idf * (idf - MEAN_IDF))
        return functional.normalize(self.word(vectors), dim=-1), gains

    def tokens(self, states: Tensor) -> Tensor:
        """Last hidden states of the document tower, float [..., L, D] -> directions float [..., L, K]."""
        return functional.normalize(self.token(states), dim=-1)

    def forward(self, words: Tensor, gains: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Learned impacts, float [W, N], >= 0, in a unit in which a BM25 impact counts `bm25_weight`.

        `words` and `gains` are from `words`, `tokens` float [N, L, K]. `mask`, bool [N, L], is True for tokens that may match a word; at
        least one per document.
        """
        cosines = torch.einsum("wk,nlk->wnl", words, tokens).masked_fill(~mask, -1.0)
        return functional.relu(self.slope * (cosines.amax(-1) - self.cut)) * gains[:, None]
