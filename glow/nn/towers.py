"""The two towers: BERT-like encoders with weighted attention over fields, one vector per text.

Source: GLOW sections 3.2-3.8; released code as in docs/papers.md 1.1: separate towers that only share the token
embedding matrix, post-norm layers, learned absolute positions, a field embedding in place of BERT's segments.

    B   sequences       L   tokens      H   hidden size = dimensions of the vector
"""

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.encoders import MASKED_LOGIT, MIN_WEIGHT, TowerConfig
from glow.nn.attention import WeightedSelfAttention
from glow.schema import FieldSchema


class EncoderLayer(nn.Module):
    """One post-norm encoder layer (Eq. 5): weighted attention, then a feed-forward block."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self.attention = WeightedSelfAttention(
            hidden, config.heads, config.weight_side, config.dropout, config.weight_form, config.gain
        )
        self.attention_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.inner = nn.Linear(hidden, config.intermediate)
        self.outer = nn.Linear(config.intermediate, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Float [B, L, H] -> float [B, L, H]; `weights` and `bias` as `WeightedSelfAttention`."""
        x = self.attention_norm(x + self.dropout(self.attention(x, weights, bias)))
        inner = functional.gelu(self.inner(x))
        return self.output_norm(x + self.dropout(self.outer(inner)))  # type: ignore[no-any-return]


class Tower(nn.Module):
    """Encodes weighted tokens into one L2-normalized vector."""

    def __init__(
        self,
        config: TowerConfig,
        words: nn.Embedding,  # token embedding matrix [vocabulary, H], shared with the other tower
        max_tokens: int,  # rows of the position table
        fields: int,  # rows of the field table
    ) -> None:
        super().__init__()
        self.pooling, self.max_tokens, self.dimensions = config.pooling, max_tokens, config.hidden
        self.words = words
        self.positions = nn.Embedding(max_tokens, config.hidden)
        self.fields = nn.Embedding(fields, config.hidden)
        self.embedding_norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.hidden, config.hidden) if config.pooling == "tanh" else None
        self.gain = nn.Parameter(torch.full((1,), config.exponent)) if config.pooling == "weighted" else None
        # Row `max_tokens - 1` is for distance 0, later rows for keys after the token.
        rows = 2 * max_tokens - 1
        self.distances = nn.Embedding(rows, config.heads) if config.relative_positions else None

    def states(self, ids: Tensor, mask: Tensor, field_ids: Tensor, weights: Tensor) -> Tensor:
        """Token embeddings of the last layer, float [B, L, H]; arguments as `forward`."""
        x = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.fields(field_ids)
        x = self.dropout(self.embedding_norm(x))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * MASKED_LOGIT  # [B, 1, 1, L]
        if self.distances is not None:
            bias = bias + self._distance_bias(self.distances, ids)
        for layer in self.layers:
            x = layer(x, weights, bias)
        return x  # type: ignore[no-any-return]

    def _distance_bias(self, distances: nn.Embedding, ids: Tensor) -> Tensor:
        """Bias of the logits of every layer from the distances of ids [B, L], float [1, n, L, L]."""
        places = torch.arange(ids.shape[1], device=ids.device)
        rows = places[None, :] - places[:, None] + self.positions.num_embeddings - 1
        return distances(rows).permute(2, 0, 1).unsqueeze(0)  # type: ignore[no-any-return]

    def attention(self, ids: Tensor, mask: Tensor, field_ids: Tensor, weights: Tensor) -> Tensor:
        """Attention of the last layer as `states` computes it, float32 [B, n, L, L]; arguments as `forward`.

        Row i of head h is the attention of token i: rows sum to 1, padded columns are 0.
        """
        last: WeightedSelfAttention = self.layers[-1].attention  # type: ignore[assignment]
        inputs: list[tuple[Tensor, ...]] = []
        # Captured by a hook, so that the loop of `states`, which is exported, stays as it is.
        hook = last.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments))
        try:
            self.states(ids, mask, field_ids, weights)
        finally:
            hook.remove()
        return last.probabilities(*inputs[0]).float()

    def forward(self, ids: Tensor, mask: Tensor, field_ids: Tensor, weights: Tensor) -> Tensor:
        """Encodes a batch as vectors float32 [B, H], L2-normalized.

        `ids`, `field_ids` and `mask`, 1 for tokens, are int64 [B, L], L at most the position table's rows; `weights` float32 [B, L], >= 0.
        """
        x = self.states(ids, mask, field_ids, weights).float()
        return functional.normalize(self._pool(x, mask, weights), dim=-1)

    def _pool(self, x: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """States float32 [B, L, H] -> float32 [B, H]."""
        if self.pooling in ("mean", "weighted"):
            share = mask.to(x.dtype)  # [B, L]
            if self.gain is not None:
                share = share * torch.exp(self.gain * weights.clamp(min=MIN_WEIGHT).log())
            share = share / share.sum(1, keepdim=True)
            return torch.matmul(share.unsqueeze(1), x).squeeze(1)
        first = x[:, 0]
        return first if self.pooler is None else torch.tanh(self.pooler(first))


class TwoTowers(nn.Module):
    """A query tower and a document tower with one token embedding matrix; the schema gives each its longest input."""

    def __init__(self, config: TowerConfig, schema: FieldSchema) -> None:
        super().__init__()
        self.config = config
        self.schema = schema
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.query = Tower(config, self.words, schema.query_tokens, 1)
        self.document = Tower(config.document, self.words, schema.document_tokens, len(schema.fields))
        self.apply(initialise)

    @classmethod
    def unset(cls, config: TowerConfig, schema: FieldSchema) -> Self:
        """Towers with uninitialized parameters, to be loaded; drawing initial values would take seconds."""
        with torch.device("meta"):
            towers = cls(config, schema)
        towers.to_empty(device="cpu")
        return towers


def initialise(module: nn.Module) -> None:
    """BERT's initialisation: normal(0, 0.02) cut at two deviations, zero biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
