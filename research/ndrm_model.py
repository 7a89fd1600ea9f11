"""NDRM1, NDRM2 and NDRM3: a word's contribution to a document's score, independent of other query words.

Source: Conformer-Kernel with query term independence, sections 3 to 5; released code as in docs/papers.md, rows 18 to 23.

    Q   queries or documents, paired or broadcast       T   words of a query       L   words of a document
    H   hidden size       n   heads       d   H / n       K   kernels              V   words of the vocabulary
"""

import math
from typing import Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.options import StrictModel


class ConformerConfig(StrictModel):
    """Shape of the layers; the defaults are the released code's."""

    hidden: int = Field(default=256, ge=1)  # H
    heads: int = Field(default=32, ge=1)  # n, also the groups of the convolution; it divides `hidden`
    layers: int = Field(default=2, ge=1)
    window: int = Field(default=31, ge=0)  # tokens that the convolution covers, odd; 0: no convolution
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
    """softmax_d(Q s) (softmax_L(K)^T V), float [..., L, d]: one d x d matrix per text and head (Eq. 2).

    The mask is broadcast to [..., L, 1], with at least one token each.
    """
    shares = key.masked_fill(~mask, -math.inf).softmax(-2)
    return (query * scale).softmax(-1) @ (shares.transpose(-1, -2) @ value)


class ConformerLayer(nn.Module):
    """Convolution, attention and feed-forward; one residual spans the first two, followed by norms.

    As released, queries and keys share a projection, and queries are scaled (row 18). Padding is 0 in the convolution (row 19).
    """

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
            y = self.convolution((y * mask[..., None]).transpose(1, 2)).transpose(1, 2)
        x = self.attention_norm(x + self.dropout(self._attention(y, mask)))
        inner = self.outer(self.dropout(functional.relu(self.inner(x))))
        return self.output_norm(x + self.dropout(inner))  # type: ignore[no-any-return]

    def _attention(self, x: Tensor, mask: Tensor) -> Tensor:
        query, keys, values = (self._split(part(x)) for part in (self.query, self.query, self.value))
        mixed = separable_attention(query, keys, values, mask[:, None, :, None], query.shape[-1] ** -0.5)
        return self.output(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        """Float [B, L, H] -> float [B, n, L, d]."""
        return x.reshape(*x.shape[:2], self.config.heads, -1).transpose(1, 2)


class ConformerEncoder(nn.Module):
    """Positions, layers, and a learned mixture of a token's embedding with the layers' output."""

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


EPSILON = 1e-6
DEVIATION = 0.1
"""Deviation of every kernel."""
NOWHERE, LEAST_POWER = 10.0, -80.0
"""A cosine at which every kernel is 0 to 1e-34; the least exponent, as smaller ones take 20 times as long."""
CONTEXT_SHARE = 0.1
"""Initial weight of the layers' output in a document's words."""


class NdrmConfig(StrictModel):
    """Shape of a model; the defaults are the released code's with fixes."""

    words: int = Field(ge=1)  # V, rows of the embedding matrix; row 0 is padding and every unknown word
    embedding: int = Field(default=256, ge=1)  # width of the embedding matrix
    kind: Literal["latent", "explicit", "both"] = "both"  # NDRM1, NDRM2, NDRM3
    conformer: ConformerConfig = ConformerConfig()
    kernels: int = Field(default=10, ge=1)  # K
    window: int = Field(default=300, ge=1)  # words that are pooled together, and the distance between windows
    stride: int = Field(default=100, ge=1)
    positions: int = Field(default=4000, ge=1)  # longest document, in words

    @model_validator(mode="after")
    def _check(self) -> "NdrmConfig":
        if self.stride > self.window:
            raise ValueError(
                f"stride {self.stride} is longer than window {self.window}: words would be left out"
            )
        return self


class TermStatistics(NamedTuple):
    """Statistics of a query's words in a document, for the explicit part."""

    tf: Tensor  # float [..., T], frequency of each word in the document
    idf: Tensor  # float, broadcast to [..., T], >= 0
    length: Tensor  # float, broadcast to [..., T]: words of the document
    mask: Tensor  # bool, broadcast to [..., T]: real words of the query


def kernel_sums(cosines: Tensor, count: int = 10, window: int = 300, stride: int = 100) -> Tensor:
    """Sums of Gaussian kernels of cosines over windows: centers 1, 1 - 2/count, …, deviation .1; none at -1.

    One kernel at a time, as all at once leave the processor's cache.

    Cosines float [..., L], `NOWHERE` for padding, give float [..., windows, K].
    """
    windows = 1 + max(0, -(-(cosines.shape[-1] - window) // stride))
    padding = window + (windows - 1) * stride - cosines.shape[-1]
    if windows > 1 and padding:
        cosines = functional.pad(cosines, (0, padding), value=NOWHERE)
    part, factor, sums = math.gcd(window, stride), 1.0 / (2.0 * DEVIATION**2), []
    squares = -factor * cosines * cosines
    for kernel in range(count):
        centre = 1.0 - 2.0 * kernel / count
        powers = torch.add(squares, cosines, alpha=2.0 * factor * centre)
        values = powers.clamp(min=LEAST_POWER).exp()
        if windows > 1:
            parts = values.reshape(*values.shape[:-1], -1, part).sum(-1)
            pooled = parts.unfold(-1, window // part, stride // part).sum(-1)
        else:  # most documents
            pooled = values.sum(-1, keepdim=True)
        sums.append(pooled * math.exp(-factor * centre**2))
    return torch.stack(sums, -1)


class KernelPooling(nn.Module):
    """Sums kernels over windows of a document, scores each window, and takes the best."""

    def __init__(self, config: NdrmConfig) -> None:
        super().__init__()
        hidden = config.conformer.hidden
        self.config = config
        self.inner = nn.Linear(config.kernels, hidden)
        self.outer = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(config.conformer.dropout)

    def forward(self, cosines: Tensor, mask: Tensor) -> Tensor:
        """Scores of words, float [..., T], by cosines float [..., T, L]."""
        config, stride = self.config, self.config.stride
        sums = kernel_sums(cosines.masked_fill(~mask, NOWHERE), config.kernels, config.window, stride)
        pooled = torch.log(sums + EPSILON)  # [..., T, windows, K]
        inner = self.dropout(functional.relu(self.inner(pooled)))
        scores = self.outer(inner).squeeze(-1)  # [..., T, windows]
        # The first window always counts; a later one only if the previous one does not reach the end (row 20).
        starts = torch.arange(sums.shape[-2], device=cosines.device) * stride
        empty = (starts > 0) & (starts - stride + config.window >= mask.sum(-1, keepdim=True))
        return scores.masked_fill(empty, -torch.inf).amax(-1)  # type: ignore[no-any-return]


class BatchScale(nn.Module):
    """Divides by the mean of all training values so far, including this batch; frozen in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Float [...] -> float [...]; mask bool of the same shape: the values that count for the mean."""
        if self.training and bool(mask.any()):
            real = values.detach()[mask].double()
            self.count += len(real)
            self.mean += (real.sum() - self.mean * len(real)) / self.count
        scale: Tensor = self.mean.to(values.dtype) + EPSILON
        return values / scale


class Explicit(nn.Module):
    """NDRM2: idf times a saturating tf, with a learned effect of document length."""

    def __init__(self) -> None:
        super().__init__()
        self.tf, self.length = BatchScale(), BatchScale()
        self.weight, self.bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))

    def forward(self, given: TermStatistics) -> Tensor:
        """Float [..., T]; exactly 0 for a word that the document lacks."""
        mask = given.mask.expand_as(given.tf)
        tf = self.tf(given.tf, mask)
        length = self.length(given.length.expand_as(given.tf), mask)
        scores: Tensor = given.idf * tf / (tf + functional.relu(self.weight * length + self.bias) + EPSILON)
        return scores


class Ndrm(nn.Module):
    """All three models: a word's score by its embedding, by its statistics, or by both."""

    def __init__(self, config: NdrmConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.conformer.hidden
        if config.kind != "explicit":
            self.words = nn.Embedding(config.words, config.embedding)
            same = config.embedding == hidden
            self.projection = nn.Identity() if same else nn.Linear(config.embedding, hidden, bias=False)
            self.query = nn.Linear(hidden, hidden)
            self.encoder = ConformerEncoder(config.conformer, config.positions)
            self.pooling = KernelPooling(config)
            self._start_from_words()
        if config.kind != "latent":
            self.explicit = Explicit()
        if config.kind == "both":
            self.norm = nn.BatchNorm1d(2)
            self.combined = nn.Linear(2, 1)

    def _start_from_words(self) -> None:
        """Initializes so that a word is nearest to itself; the released code's random start needs 100,000 steps."""
        nn.init.eye_(self.query.weight)
        nn.init.zeros_(self.query.bias)
        if isinstance(self.projection, nn.Linear):
            nn.init.orthogonal_(self.projection.weight)
        with torch.no_grad():
            self.encoder.mixture.weight.copy_(torch.tensor([[1.0, CONTEXT_SHARE]]))
            self.encoder.mixture.bias.zero_()

    def query_words(self, ids: Tensor) -> Tensor:
        """Words of queries, each for itself: int64 [..., T] -> float [..., T, H], L2-normalized."""
        return functional.normalize(self.query(self.projection(self.words(ids))), dim=-1)

    def document(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Words of documents in context: int64 [B, L] and bool [B, L] -> float [B, L, H], L2-normalized."""
        embedded = self.projection(self.words(ids))
        return functional.normalize(self.encoder(embedded, mask), dim=-1)

    def latent(self, query: Tensor, document: Tensor, mask: Tensor) -> Tensor:
        """Scores float [..., T] of words float [..., T, H] in documents float [..., L, H], mask bool [..., L]."""
        return self.pooling(query @ document.transpose(-1, -2), mask[..., None, :])  # type: ignore[no-any-return]

    def combine(self, latent: Tensor | None, given: TermStatistics | None) -> Tensor:
        """The contribution of each word, float [..., T]; 0 for masked slots. `latent` is None for NDRM2."""
        if self.config.kind == "latent" and latent is not None:
            return latent if given is None else latent * given.mask
        if given is None:
            raise ValueError(f"kind {self.config.kind!r} needs statistics of the words")
        explicit = self.explicit(given)
        if latent is None:
            return explicit * given.mask  # type: ignore[no-any-return]
        parts = torch.stack([latent, explicit], -1)
        mask = given.mask.expand_as(explicit)
        # Only statistics of real slots: padding would make the mean depend on a batch's longest query (row 21).
        real = self.combined(self.norm(parts[mask])).squeeze(-1)
        return torch.zeros_like(explicit).masked_scatter(mask, real.to(explicit.dtype))
