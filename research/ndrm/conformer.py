"""Conformer layers with separable self-attention, whose memory grows linearly with a text's length.

Source: Conformer-Kernel with query term independence, section 4.1 (Eq. 2); released code as in docs/papers.md, rows 18, 19 and 23.

    B   texts       L   tokens      H   hidden size     n   heads       d   H / n
"""

import math
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.options import StrictModel

__all__ = ["ConformerConfig", "ConformerEncoder", "ConformerLayer", "plain_attention", "separable_attention"]


class ConformerConfig(StrictModel):
    """Shape of the layers; the defaults are the released code's except the fix `masked_convolution`.

    Attributes:
        hidden: H.
        heads: n, also the groups of the convolution; it divides `hidden`.
        layers: number of layers.
        window: tokens that the convolution covers, odd; 0: no convolution.
        attention: `separable`, or `plain` for comparison.
        shared_projection: whether queries and keys are one projection (released code; the paper has two).
        scaled_queries: whether queries are divided by sqrt(d) before their softmax (released code; the paper has no scale).
        masked_convolution: whether padding is zeroed before the convolution; the released code lets it leak in.
        dropout: dropout in training.
    """

    hidden: int = Field(default=256, ge=1)
    heads: int = Field(default=32, ge=1)
    layers: int = Field(default=2, ge=1)
    window: int = Field(default=31, ge=0)
    attention: Literal["separable", "plain"] = "separable"
    shared_projection: bool = True
    scaled_queries: bool = True
    masked_convolution: bool = True
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _check(self) -> "ConformerConfig":
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden, found {self.heads} and {self.hidden}")
        if self.window and self.window % 2 == 0:
            raise ValueError(f"window must be odd, so that a token is in its middle, found {self.window}")
        return self


def separable_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float = 1.0
) -> Tensor:
    """softmax_d(Q s) (softmax_L(K)^T V): one d x d matrix per text and head, independent of length (Eq. 2).

    Args:
        query, key, value: float [..., L, d].
        mask: bool, broadcast to [..., L, 1]; at least one token each.
        scale: s.

    Returns:
        float [..., L, d].
    """
    shares = key.masked_fill(~mask, -math.inf).softmax(-2)
    return (query * scale).softmax(-1) @ (shares.transpose(-1, -2) @ value)


def plain_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
    """softmax_L(Q K^T s) V, with its L x L matrix; arguments as `separable_attention`."""
    logits = (query * scale) @ key.transpose(-1, -2)
    return logits.masked_fill(~mask.transpose(-1, -2), -math.inf).softmax(-1) @ value


class ConformerLayer(nn.Module):
    """Convolution, attention and feed-forward; one residual spans the first two, followed by norms."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self.config = config
        self.convolution = (
            nn.Conv1d(hidden, hidden, config.window, padding=config.window // 2, groups=config.heads)
            if config.window
            else None
        )
        self.query = nn.Linear(hidden, hidden)
        self.key = None if config.shared_projection else nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden)
        self.inner = nn.Linear(hidden, hidden)
        self.outer = nn.Linear(hidden, hidden)
        self.output_norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Float [B, L, H] -> float [B, L, H]; mask bool [B, L], at least one token per text."""
        y = x
        if self.convolution is not None:
            if self.config.masked_convolution:
                y = y * mask[..., None]
            y = self.convolution(y.transpose(1, 2)).transpose(1, 2)
        x = self.attention_norm(x + self.dropout(self._attention(y, mask)))
        inner = self.outer(self.dropout(functional.relu(self.inner(x))))
        return self.output_norm(x + self.dropout(inner))  # type: ignore[no-any-return]

    def _attention(self, x: Tensor, mask: Tensor) -> Tensor:
        key = self.query if self.key is None else self.key
        query, keys, values = (self._split(part(x)) for part in (self.query, key, self.value))
        attend = separable_attention if self.config.attention == "separable" else plain_attention
        scale = query.shape[-1] ** -0.5 if self.config.scaled_queries else 1.0
        found = attend(query, keys, values, mask[:, None, :, None], scale)
        return self.output(found.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        """Float [B, L, H] -> float [B, n, L, d]."""
        return x.reshape(*x.shape[:2], self.config.heads, -1).transpose(1, 2)


class ConformerEncoder(nn.Module):
    """Positions, layers, and a learned mixture of a token's embedding with the layers' output.

    Args:
        config: of the layers.
        positions: longest text, in tokens.
    """

    def __init__(self, config: ConformerConfig, positions: int) -> None:
        super().__init__()
        self.positions: Tensor
        self.register_buffer("positions", _sinusoids(positions, config.hidden), persistent=False)
        self.layers = nn.ModuleList(ConformerLayer(config) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)
        self.mixture = nn.Linear(2, 1)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """Float [B, L, H] -> float [B, L, H]; mask as `ConformerLayer`, L at most `positions`."""
        x = self.dropout(embedded + self.positions[: embedded.shape[1]])
        for layer in self.layers:
            x = layer(x, mask)
        return self.mixture(torch.stack([embedded, x], -1)).squeeze(-1)  # type: ignore[no-any-return]


def _sinusoids(rows: int, hidden: int) -> Tensor:
    """Float [rows, hidden]: sines and cosines side by side (Vaswani 2017, section 3.5)."""
    angles = torch.arange(rows)[:, None] * torch.exp(
        torch.arange(0, hidden, 2) * (-math.log(10_000.0) / hidden)
    )
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :hidden]
