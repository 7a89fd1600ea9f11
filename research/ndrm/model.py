"""NDRM1, NDRM2 and NDRM3: a word's contribution to a document's score, independent of other query words.

Source: Conformer-Kernel with query term independence, sections 3 to 5; released code as in docs/papers.md, rows 20 to 23.

    Q   queries or documents, paired or broadcast       T   words of a query       L   words of a document
    H   hidden size                                     K   kernels                V   words of the vocabulary
"""

import math
from typing import Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.options import StrictModel
from research.ndrm.conformer import ConformerConfig, ConformerEncoder

__all__ = ["BatchScale", "KernelPooling", "Ndrm", "NdrmConfig", "TermStatistics", "kernel_sums"]

EPSILON = 1e-6
DEVIATION = 0.1
"""Deviation of every kernel."""
NOWHERE, LEAST_POWER = 10.0, -80.0
"""A cosine at which every kernel is 0 to 1e-34; the least exponent, as smaller ones take 20 times as long."""
CONTEXT_SHARE = 0.1
"""Initial weight of the layers' output in a document's words."""


class NdrmConfig(StrictModel):
    """Shape of a model; the defaults are the released code's with fixes.

    Attributes:
        words: V, rows of the embedding matrix; row 0 is padding and every unknown word.
        embedding: width of the embedding matrix.
        kind: `latent` (NDRM1), `explicit` (NDRM2) or `both` (NDRM3).
        conformer: configuration of the latent part.
        kernels: K.
        window, stride: words that are pooled together, and the distance between windows.
        positions: longest document, in words.
        skip_empty_windows: whether the maximum excludes windows after a document's end; otherwise (released code) a
            document's score depends on the padding of its batch.
        contextual_queries: whether queries also pass through the encoder, so that a word's contribution depends on the
            others. Then only documents can be precomputed.
    """

    words: int = Field(ge=1)
    embedding: int = Field(default=256, ge=1)
    kind: Literal["latent", "explicit", "both"] = "both"
    conformer: ConformerConfig = ConformerConfig()
    kernels: int = Field(default=10, ge=1)
    window: int = Field(default=300, ge=1)
    stride: int = Field(default=100, ge=1)
    positions: int = Field(default=4000, ge=1)
    skip_empty_windows: bool = True
    contextual_queries: bool = False

    @model_validator(mode="after")
    def _check(self) -> "NdrmConfig":
        if self.stride > self.window:
            raise ValueError(
                f"stride {self.stride} is longer than window {self.window}: words would be left out"
            )
        return self


class TermStatistics(NamedTuple):
    """Statistics of a query's words in a document, for the explicit part.

    Attributes:
        tf: float [..., T], frequency of each word in the document.
        idf: float, broadcast to [..., T], >= 0.
        length: float, broadcast to [..., T]: words of the document.
        mask: bool, broadcast to [..., T]: real words of the query.
    """

    tf: Tensor
    idf: Tensor
    length: Tensor
    mask: Tensor


def kernel_sums(cosines: Tensor, count: int = 10, window: int = 300, stride: int = 100) -> Tensor:
    """Sums of Gaussian kernels of cosines over windows: centers 1, 1 - 2/count, …, deviation .1; none at -1.

    One kernel at a time, as all at once leave the processor's cache.

    Args:
        cosines: float [..., L]; `NOWHERE` for padding.
        count: K.
        window, stride: words of a window, and the distance between windows.

    Returns:
        float [..., windows, K].
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
        """Scores of words, float [..., T].

        Args:
            cosines: float [..., T, L].
            mask: bool, broadcast to [..., 1, L]; real words of the document come first.
        """
        config, stride = self.config, self.config.stride
        sums = kernel_sums(cosines.masked_fill(~mask, NOWHERE), config.kernels, config.window, stride)
        pooled = torch.log(sums + EPSILON)  # [..., T, windows, K]
        scores = self.outer(self.dropout(functional.relu(self.inner(pooled)))).squeeze(
            -1
        )  # [..., T, windows]
        if self.config.skip_empty_windows:
            # The first window always counts; a later one only if the previous one does not reach the end.
            starts = torch.arange(sums.shape[-2], device=cosines.device) * stride
            ends = mask.sum(-1, keepdim=True)
            empty = (starts > 0) & (starts - stride + config.window >= ends)
            scores = scores.masked_fill(empty, -torch.inf)
        return scores.amax(-1)  # type: ignore[no-any-return]


class BatchScale(nn.Module):
    """Divides by the mean of all training values so far, including this batch; frozen in evaluation.

    Attributes:
        mean, count: of the real slots so far.
    """

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

    def query_words(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Words of queries: int64 [..., T] -> float [..., T, H], L2-normalized; independent unless contextual.

        Args:
            ids: int64 [..., T]; [B, T] if contextual.
            mask: bool [B, T], at least one per query; only for contextual ones.
        """
        embedded = self.projection(self.words(ids))
        if self.config.contextual_queries:
            if mask is None:
                raise ValueError("contextual queries need their mask")
            embedded = self.encoder(embedded, mask)
        return functional.normalize(self.query(embedded), dim=-1)

    def document(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Words of documents in context: int64 [B, L] and bool [B, L] -> float [B, L, H], L2-normalized."""
        embedded = self.projection(self.words(ids))
        return functional.normalize(self.encoder(embedded, mask), dim=-1)

    def latent(self, query: Tensor, document: Tensor, mask: Tensor) -> Tensor:
        """Scores float [..., T] of words float [..., T, H] in documents float [..., L, H], mask bool [..., L]."""
        return self.pooling(query @ document.transpose(-1, -2), mask[..., None, :])  # type: ignore[no-any-return]

    def combine(self, latent: Tensor | None, given: TermStatistics | None) -> Tensor:
        """The contribution of each word, float [..., T]; 0 for masked slots.

        Args:
            latent: float [..., T]; None for NDRM2.
            given: statistics; NDRM1 uses only their mask, and without it every slot is a word.
        """
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
