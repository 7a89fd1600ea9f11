"""One joined layer and late interaction, computed on the stored numbers: no token is restored to H numbers.

A document's keys, values and compared numbers are all L·norm(U·s + c) with some matrix L. s holds the e stored numbers
of a token; U, c and the norm are the compressor's. The norm subtracts a mean and divides by σ. So this is (M·s + m)·(1/σ) + w with

    P = 1 - 11ᵀ/H       M = L·diag(g)·P·U       m = L·diag(g)·P·c       w = L·b + l         g, b: of the norm; l: the bias of L
    σ² = sᵀ·A·s + 2·aᵀ·s + α + ε                A = (P·U)ᵀ(P·U)/H       a = (P·U)ᵀ(P·c)/H       α = |P·c|²/H

The rest is linear in these except the softmax and the maximum, so products with a query move to the query's side. Each
token needs products of e by e and e by heads, instead of e by H and H by 2H. Scores are equal except for rounding.

    B   documents       Lq, Ld  tokens      H   hidden size     e   numbers of a token      n, d   heads and their size     p   numbers compared
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.errors import ExportError
from glow.nn import MASKED_LOGIT, Compressor, CrossEncoder, EncoderLayer, LateInteraction

__all__ = ["AbsorbedJoin", "AbsorbedLate", "can_absorb"]

_LEAST = 1e-12


def can_absorb(model: CrossEncoder) -> bool:
    """Whether the model has a compressor and a single joined layer."""
    return model.compressor is not None and model.config.split == model.config.layers - 1


class _Absorbed(nn.Module):
    """A linear layer over restored token embeddings, applied to stored ones: M, m and w of the module's docstring.

    Args:
        compressor: the compressor of the stored numbers.
        weight: L, float [out, H].
        bias: l, float [out].
    """

    matrix: Tensor
    shift: Tensor
    rest: Tensor

    def __init__(self, compressor: Compressor, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        up, norm = compressor.up, compressor.norm
        matrix, centre = _centred(up)
        scaled = weight.double() * norm.weight.double()
        self.register_buffer("matrix", (scaled @ matrix).float())  # M, [out, e]
        self.register_buffer("shift", (scaled @ centre).float())  # m, [out]
        self.register_buffer(
            "rest", (weight.double() @ norm.bias.double() + bias.double()).float()
        )  # w, [out]


class _Scale(nn.Module):
    """1/σ of stored tokens, and the squared length of what late interaction compares, if any."""

    def __init__(self, compressor: Compressor, compared: _Absorbed | None) -> None:
        super().__init__()
        size = compressor.up.in_features
        matrix, centre = _centred(compressor.up)
        hidden = len(centre)
        parts = [(matrix.T @ matrix / hidden, 2.0 * matrix.T @ centre / hidden)]
        self.variance = float(centre @ centre / hidden) + compressor.norm.eps
        if compared is not None:
            own, shift, rest = compared.matrix.double(), compared.shift.double(), compared.rest.double()
            parts.append((own.T @ own, 2.0 * own.T @ shift))
            parts.append(((own.T @ rest)[None], (shift @ rest)[None]))
            self.own, self.rest = float(shift @ shift), float(rest @ rest)
        self.size = size
        # One product for all: the exporter needs a bias after each.
        self.products = _linear(
            torch.cat([part for part, _ in parts]), torch.cat([part for _, part in parts])
        )

    def forward(self, stored: Tensor) -> tuple[Tensor, Tensor]:
        """1/σ, float [B, Ld, 1], and |y|, float [B, Ld, 1]; |y| is 1 if nothing is compared."""
        found = self.products(stored)
        variance = (found[..., : self.size] * stored).sum(-1, keepdim=True) + self.variance
        inverse = variance.clamp_min(_LEAST).rsqrt()
        if found.shape[-1] == self.size:
            return inverse, torch.ones_like(inverse)
        own = (found[..., self.size : 2 * self.size] * stored).sum(-1, keepdim=True) + self.own
        squared = own * inverse**2 + 2.0 * found[..., 2 * self.size :] * inverse + self.rest
        return inverse, squared.clamp_min(_LEAST).sqrt()


class _Compared(nn.Module):
    """Late interaction, given 1/σ and the lengths."""

    def __init__(self, compressor: Compressor, late: LateInteraction) -> None:
        super().__init__()
        outputs = late.project.weight.shape[0]
        self.document = _Absorbed(compressor, late.project.weight, torch.zeros(outputs))
        self.project = _linear(late.project.weight, torch.zeros(outputs))
        self.importance, self.scale = late.importance, late.scale

    def forward(
        self, query: Tensor, query_mask: Tensor, stored: Tensor, mask: Tensor, inverse: Tensor, length: Tensor
    ) -> Tensor:
        ours = functional.normalize(self.project(query), dim=-1)[0]  # [Lq, p]
        own = self.document
        # A product's constant comes first: after a second one the exporter needs a bias.
        at = own.matrix.T @ ours.T  # [e, Lq]
        height, base = ((ours * part).sum(-1) for part in (own.shift, own.rest))  # [Lq] each
        products = (stored @ at + height) * inverse + base  # [B, Ld, Lq]
        padding = (1.0 - mask[:, :, None].to(query.dtype)) * MASKED_LOGIT
        nearest = (products / length + padding).max(1).values  # [B, Lq]
        hidden = (1.0 - query_mask.to(query.dtype)) * MASKED_LOGIT
        shares = (self.importance(query).squeeze(-1) + hidden).softmax(-1)
        similarity: Tensor = self.scale * (shares * nearest).sum(-1)
        return similarity


class AbsorbedLate(nn.Module):
    """Late interaction alone over stored numbers; inputs and output as in `glow_model_export.rerank_graphs`.

    Args:
        model: a model with a compressor and late interaction.

    Raises:
        ExportError: if it lacks one.
    """

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        if model.compressor is None or model.late is None:
            raise ExportError("late interaction on stored numbers needs a compressor and late interaction")
        self.compared = _Compared(model.compressor, model.late)
        self.lengths = _Scale(model.compressor, self.compared.document)

    def forward(self, query: Tensor, query_mask: Tensor, stored: Tensor, mask: Tensor) -> Tensor:
        """Float32 [B]."""
        return self.compared(query, query_mask, stored, mask, *self.lengths(stored))  # type: ignore[no-any-return]


class AbsorbedJoin(nn.Module):
    """The single joined layer, computed for [CLS] alone, plus late interaction.

    Args:
        model: one that `can_absorb` accepts.

    Raises:
        ExportError: if there are more joined layers, or no compressor.
    """

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        if model.compressor is None or not can_absorb(model):
            raise ExportError(
                "only a re-ranker with a compressor and one joined layer can use stored numbers directly"
            )
        last: EncoderLayer = model.layers[-1]  # type: ignore[assignment]
        hidden, qkv = model.config.hidden, last.attention.qkv
        self.heads, self.part = model.config.heads, hidden // model.config.heads
        self.query = _linear(qkv.weight[:hidden], qkv.bias[:hidden])
        self.key_value = _linear(qkv.weight[hidden:], qkv.bias[hidden:])
        self.document = _Absorbed(model.compressor, qkv.weight[hidden:], qkv.bias[hidden:])
        self.late = _Compared(model.compressor, model.late) if model.late is not None else None
        self.lengths = _Scale(model.compressor, None if self.late is None else self.late.document)
        self.output = last.attention.output
        self.attention_norm, self.output_norm = last.attention_norm, last.output_norm
        self.inner, self.outer, self.head = last.inner, last.outer, model.head

    def forward(
        self, query: Tensor, query_mask: Tensor, stored: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores, float32 [B], and attention of [CLS], float32 [B, Lq + Ld]."""
        inverse, length = self.lengths(stored)
        first = query[:, 0]  # [1, H]
        attended, shares = self._attend(first, query, query_mask, stored, mask, inverse)
        x = self.attention_norm(first + self.output(attended))
        x = self.output_norm(x + self.outer(functional.gelu(self.inner(x))))
        score: Tensor = self.head(x).squeeze(-1)
        if self.late is not None:
            score = score + self.late(query, query_mask, stored, mask, inverse, length)
        return score, shares.mean(1)

    def _attend(
        self,
        first: Tensor,
        query: Tensor,
        query_mask: Tensor,
        stored: Tensor,
        mask: Tensor,
        inverse: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The output of [CLS]'s attention, float [B, H], and its weights, float [B, n, Lq + Ld]."""
        count, sent = stored.shape[0], self._by_head(self.query(first) * self.part**-0.5)  # [n, d]
        keys, values = self.key_value(query)[0].chunk(2, dim=-1)  # [Lq, H] each
        own = self.document
        matrix, shift, rest = (
            part.reshape(2, self.heads, self.part, -1) for part in (own.matrix, own.shift, own.rest)
        )
        at = (matrix[0].transpose(1, 2) @ sent[:, :, None]).squeeze(-1).T  # [e, n]
        height, base = ((part[0].squeeze(-1) * sent).sum(-1) for part in (shift, rest))  # [n] each
        theirs = (stored @ at + height) * inverse + base  # [B, Ld, n]
        ours = (keys.reshape(-1, self.heads, self.part) * sent).sum(-1)  # [Lq, n]
        logits = torch.cat([ours.expand(count, -1, -1), theirs], 1)
        kept = torch.cat([query_mask.expand(count, -1), mask], 1)
        shares = (
            (logits + (1.0 - kept[:, :, None].to(logits.dtype)) * MASKED_LOGIT).softmax(1).transpose(1, 2)
        )
        length = query.shape[1]
        of_query, of_document = shares[:, :, :length], shares[:, :, length:]  # [B, n, Lq], [B, n, Ld]
        by_scale = of_document * inverse.transpose(1, 2)
        gathered = by_scale @ stored  # [B, n, e]
        attended = (matrix[1] @ gathered[..., None]).squeeze(-1)  # [B, n, d]
        attended = attended + shift[1].squeeze(-1) * by_scale.sum(-1, keepdim=True)
        attended = attended + rest[1].squeeze(-1) * of_document.sum(-1, keepdim=True)
        told = values.reshape(-1, self.heads, self.part).transpose(0, 1)  # [n, Lq, d]
        attended = attended + (of_query[:, :, None, :] @ told).squeeze(2)
        return attended.flatten(1), shares

    def _by_head(self, row: Tensor) -> Tensor:
        return row.reshape(self.heads, self.part)


def _centred(up: nn.Linear) -> tuple[Tensor, Tensor]:
    """P·U, float64 [H, e], and P·c, float64 [H]."""
    matrix, centre = up.weight.detach().double(), up.bias.detach().double()
    return matrix - matrix.mean(0, keepdim=True), centre - centre.mean()


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A new linear layer with given weights."""
    made = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(bias)
    return made
