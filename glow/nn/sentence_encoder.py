"""The encoder in pre-training, before it becomes a tower: special tokens, then the subword tokens of a contiguous text.

Source: Cross-Thought section 3.2, Eq. 1-2; released code as in docs/papers.md, Cross-Thought. A sequence is S_0 … S_{N-1} and its
tokens. Special tokens have their own embeddings and positions 0 … N-1, also after pre-training (row 34); a tower's [CLS] is the first.

    S   sequences       L   tokens of a sequence        N   special tokens      H   hidden size
    T   masked tokens of all sequences
"""

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.nn.attention import MASKED_LOGIT
from glow.nn.towers import EncoderLayer, TowerConfig
from glow.options import StrictModel

__all__ = ["MaskedWordHead", "SentenceConfig", "SentenceEncoder", "masked_bias"]


class SentenceConfig(StrictModel):
    """Shape of an encoder in pre-training.

    Attributes:
        vocabulary, hidden, layers, heads, intermediate, dropout, layer_norm_eps: as `glow.nn.TowerConfig`.
        specials: N.
        positions: rows of the position table.
    """

    vocabulary: int = Field(ge=5)
    hidden: int = Field(default=384, ge=1)
    layers: int = Field(default=3, ge=1)
    heads: int = Field(default=12, ge=1)
    intermediate: int = Field(default=1536, ge=1)
    specials: int = Field(default=5, ge=1)
    positions: int = Field(default=512, ge=2)
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    layer_norm_eps: float = Field(default=1e-12, gt=0.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.specials >= self.positions:
            raise ValueError(
                f"{self.specials} special tokens leave no position for words of {self.positions}"
            )
        return self

    @property
    def layer(self) -> TowerConfig:
        """Shape of one layer: attention without weights."""
        shared = {"vocabulary", "hidden", "heads", "intermediate", "dropout", "layer_norm_eps"}
        return TowerConfig(**self.model_dump(include=shared), weight_form="plain")

    def most_offset(self, length: int) -> int:
        """The largest offset of `length` tokens in the position table: 444 for 64 tokens, five special tokens, 512 rows."""
        return self.positions - self.specials - length + 1


class SentenceEncoder(nn.Module):
    """Encodes sequences into embeddings of their special and subword tokens.

    Args:
        config: the shape.
    """

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.specials = nn.Embedding(config.specials, config.hidden)
        self.positions = nn.Embedding(config.positions, config.hidden)
        self.segment = nn.Parameter(torch.zeros(config.hidden))
        self.embedding_norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config.layer) for _ in range(config.layers))

    def forward(self, ids: Tensor, mask: Tensor, offset: int = 1) -> Tensor:
        """Last hidden states.

        Args:
            ids: int64 [S, L].
            mask: bool [S, L], True for tokens; special tokens are always present.
            offset: r >= 1; tokens have positions N - 1 + r, N + r, … (row 34).

        Returns:
            float [S, N + L, H], the special tokens first.
        """
        x = self.embed(ids, offset)
        bias = masked_bias(mask, self.config.specials)
        plain = torch.ones(x.shape[:2], device=x.device)
        for layer in self.layers:
            x = layer(x, plain, bias)
        return x

    def set_positions(self, rows: Tensor) -> None:
        """Loads a table float [positions - N + 1, H] for one special token: its first row is copied for all special tokens."""
        with torch.no_grad():
            self.positions.weight.copy_(torch.cat([rows[:1].expand(self.config.specials, -1), rows[1:]]))

    def positions_of_one(self) -> Tensor:
        """The table for a tower, float [positions - N + 1, H]: words follow the first special token."""
        return torch.cat([self.positions.weight[:1], self.positions.weight[self.config.specials :]])

    def embed(self, ids: Tensor, offset: int = 1) -> Tensor:
        """Embeddings float [S, N + L, H]; arguments as `forward`."""
        count, start = self.config.specials, self.config.specials - 1 + offset
        special = self.specials.weight + self.positions.weight[:count]
        pieces = self.words(ids) + self.positions.weight[start : start + ids.shape[1]]
        x = torch.cat([special.expand(len(ids), -1, -1), pieces], 1) + self.segment
        return self.dropout(self.embedding_norm(x))  # type: ignore[no-any-return]


class MaskedWordHead(nn.Module):
    """RoBERTa's output head: a layer, then a product with the token embedding matrix, which the encoder shares.

    Args:
        words: the matrix [vocabulary, H].
        layer_norm_eps: of the norm between the two.
    """

    def __init__(self, words: nn.Embedding, layer_norm_eps: float) -> None:
        super().__init__()
        self.words = words
        self.dense = nn.Linear(words.embedding_dim, words.embedding_dim)
        self.norm = nn.LayerNorm(words.embedding_dim, eps=layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))

    def forward(self, states: Tensor) -> Tensor:
        """Float [T, H] -> a logit for every token of the vocabulary, float [T, vocabulary]."""
        return functional.linear(self.norm(functional.gelu(self.dense(states))), self.words.weight, self.bias)


def masked_bias(mask: Tensor, specials: int) -> Tensor:
    """Bias of the attention logits over special and subword tokens, float [S, 1, 1, N + L]; `mask` is bool [S, L]."""
    there = functional.pad(mask, (specials, 0), value=True)
    return (~there[:, None, None, :]) * MASKED_LOGIT
