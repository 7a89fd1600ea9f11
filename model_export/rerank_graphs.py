"""Exports a re-ranker as ONNX graphs: a query up to layer l, a document up to layer l, and both joined.

The products are arranged for serving: the last layer computes [CLS] alone. With one joined layer, keys and values of the
query are computed once for all documents, and no token of a document is restored to H numbers:

A document's keys, values and compared numbers are all L·norm(U·s + c) with some matrix L. s holds the e stored numbers
of a token; U, c and the norm are the compressor's. The norm subtracts a mean and divides by σ. So this is (M·s + m)·(1/σ) + w with

    P = 1 - 11ᵀ/H       M = L·diag(g)·P·U       m = L·diag(g)·P·c       w = L·b + l         g, b: of the norm; l: the bias of L
    σ² = sᵀ·A·s + 2·aᵀ·s + α + ε                A = (P·U)ᵀ(P·U)/H       a = (P·U)ᵀ(P·c)/H       α = |P·c|²/H

The rest is linear in these except the softmax and the maximum, so products with a query move to the query's side. Each
token needs products of e by e and e by heads, instead of e by H and H by 2H. Scores are equal except for rounding.

    B   documents       Lq, Ld  tokens      H   hidden size     e   numbers of a token      n, d   heads and their size     p   numbers compared
"""

import torch
from onnx import ModelProto
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from glow.artifact import DOCUMENT_READER, JOIN_GRAPH, QUERY_READER
from glow.errors import ExportError
from glow.nn import MASKED_LOGIT, Compressor, CrossEncoder, EncoderLayer, LateInteraction
from glow_model_export.graph import MAX_BATCH, trace

PAIR_INPUTS = ("query", "query_mask", "stored", "mask")
RERANK_GRAPHS = (QUERY_READER, DOCUMENT_READER, JOIN_GRAPH)
"""File -> inputs and outputs: `ids`, `mask` (and `field_ids`) -> `states` (`stored`); `PAIR_INPUTS` -> `score` and `attention`."""
_LENGTHS = (5, 7)
_LEAST = 1e-12


def export_rerank_graphs(model: CrossEncoder) -> dict[str, ModelProto]:
    """Exports a re-ranker in float32 with dynamic batch and lengths: file name -> graph.

    Queries: int64 [1, Lq] `ids` and `mask` -> float32 [1, Lq, H]. Documents: int64 [B, Ld] each -> float32 [B, Ld, e]. Pairs: float32
    [1, Lq, H], int64 [1, Lq], float32 [B, Ld, e], int64 [B, Ld] -> float32 [B], and attention of [CLS] in the last layer, mean over
    heads, float32 [B, Lq + Ld]. The model is in evaluation mode, on the CPU.
    """
    config = model.config
    if not config.split or not config.compressed or config.weight_form != "plain":
        raise ExportError(
            f"split {config.split}, compressed {config.compressed} and weight_form {config.weight_form!r}: only a re-ranker that "
            "stores documents (split >= 1) with a compressor and reads no word weights can be exported"
        )
    batch = Dim("batch", min=1, max=MAX_BATCH)
    short = Dim("query_length", min=2, max=config.query_tokens)
    long = Dim("length", min=2, max=config.document_tokens)
    query, document = (torch.ones(2, length, dtype=torch.int64) for length in _LENGTHS)
    one = query[:1]
    pairs = (
        torch.rand(1, _LENGTHS[0], config.hidden),
        one,
        torch.rand(2, _LENGTHS[1], config.compressed),
        document,
    )
    pair_shapes = ({1: short}, {1: short}, {0: batch, 1: long}, {0: batch, 1: long})
    texts = (document, document, torch.zeros_like(document))
    with torch.no_grad():
        join = _AbsorbedJoin(model) if config.split == config.layers - 1 else _Join(model)
    graphs = [
        trace(_Query(model).eval(), (one, one), ("ids", "mask"), ("states",), [{1: short}] * 2),
        trace(
            _Document(model).eval(),
            texts,
            ("ids", "mask", "field_ids"),
            ("stored",),
            [{0: batch, 1: long}] * 3,
        ),
        trace(join.eval(), pairs, PAIR_INPUTS, ("score", "attention"), pair_shapes),
    ]
    return dict(zip(RERANK_GRAPHS, graphs, strict=True))


class _Apart(nn.Module):
    """Embeddings and layers 1 to l only, so that the graph holds nothing else."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.words, self.embedding_norm = model.words, model.embedding_norm
        self.positions, self.segments = model.positions, model.segments
        self.layers = model.layers[: model.config.split]

    def states(self, ids: Tensor, mask: Tensor, segments: Tensor, start: int) -> Tensor:
        places = self.positions.weight[start : start + ids.shape[1]]
        x = self.embedding_norm(self.words(ids) + places + self.segments(segments))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * MASKED_LOGIT
        plain = torch.ones_like(ids, dtype=x.dtype)
        for layer in self.layers:
            x = layer(x, plain, bias)
        return x  # type: ignore[no-any-return]


class _Query(_Apart):
    def __init__(self, model: CrossEncoder) -> None:
        super().__init__(model)
        self.compressor = _compressor(model)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.compressor(self.states(ids, mask, torch.zeros_like(ids), 0))  # type: ignore[no-any-return]


class _Document(_Apart):
    def __init__(self, model: CrossEncoder) -> None:
        super().__init__(model)
        self.down, self.start = _compressor(model).down, model.config.query_tokens

    def forward(self, ids: Tensor, mask: Tensor, field_ids: Tensor) -> Tensor:
        return functional.gelu(self.down(self.states(ids, mask, field_ids + 1, self.start)))


class _Join(nn.Module):
    """Several joined layers over restored tokens, the last for [CLS] alone, plus late interaction."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        compressor = _compressor(model)
        self.up, self.norm = compressor.up, compressor.norm
        self.late = _Similarity(model.late) if model.late is not None else None
        self.between = model.layers[model.config.split : -1]
        last: EncoderLayer = model.layers[-1]  # type: ignore[assignment]
        hidden, qkv = model.config.hidden, last.attention.qkv
        self.query = _linear(qkv.weight[:hidden], qkv.bias[:hidden])
        self.key_value = _linear(qkv.weight[hidden:], qkv.bias[hidden:])
        self.output = last.attention.output
        self.attention_norm, self.output_norm = last.attention_norm, last.output_norm
        self.inner, self.outer, self.head = last.inner, last.outer, model.head
        self.heads = model.config.heads

    def forward(
        self, query: Tensor, query_mask: Tensor, stored: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        document = self.norm(self.up(stored))
        count = stored.shape[0]
        present = torch.cat([query_mask.expand(count, -1), mask], 1)
        bias = (1.0 - present[:, None, None, :].to(query.dtype)) * MASKED_LOGIT
        if len(self.between):
            x = torch.cat([query.expand(count, -1, -1), document], 1)
            plain = torch.ones_like(present, dtype=x.dtype)
            for layer in self.between:
                x = layer(x, plain, bias)
            first, both = x[:, :1], self.key_value(x)
        else:
            first = query[:, :1].expand(count, -1, -1)
            both = torch.cat([self.key_value(query).expand(count, -1, -1), self.key_value(document)], 1)
        last, shares = self._last(first, both, bias)
        score: Tensor = self.head(last).squeeze(-1).squeeze(-1)
        attention = shares.mean(1).squeeze(1)
        if self.late is None:
            return score, attention
        return score + self.late(query, query_mask, document, mask), attention

    def _last(self, first: Tensor, both: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """[CLS] after the last layer, float [B, 1, H], and its attention, [B, n, 1, L]."""
        k, v = both.chunk(2, dim=-1)
        size = first.shape[-1] // self.heads
        q, k, v = (self._split(part) for part in (self.query(first) * size**-0.5, k, v))
        shares = (q @ k.transpose(-1, -2) + bias).softmax(-1)  # [B, n, 1, L]
        attended = shares @ v  # [B, n, 1, d]
        x = self.attention_norm(first + self.output(attended.transpose(1, 2).flatten(-2)))
        return self.output_norm(x + self.outer(functional.gelu(self.inner(x)))), shares

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, x.shape[-1] // self.heads).transpose(1, 2)


class _Similarity(nn.Module):
    """`LateInteraction`; its projection has a bias of 0, because `trace` needs one after every product."""

    def __init__(self, late: LateInteraction) -> None:
        super().__init__()
        self.project = _linear(late.project.weight, torch.zeros(len(late.project.weight)))
        self.importance, self.scale = late.importance, late.scale

    def forward(self, query: Tensor, query_mask: Tensor, document: Tensor, mask: Tensor) -> Tensor:
        ours = functional.normalize(self.project(query), dim=-1)
        theirs = functional.normalize(self.project(document), dim=-1)
        padding = (1.0 - mask[:, None, :].to(query.dtype)) * MASKED_LOGIT
        nearest = (ours @ theirs.transpose(1, 2) + padding).max(-1).values  # [B, Lq]
        hidden = (1.0 - query_mask.to(query.dtype)) * MASKED_LOGIT
        shares = (self.importance(query).squeeze(-1) + hidden).softmax(-1)
        similarity: Tensor = self.scale * (shares * nearest).sum(-1)
        return similarity


class _AbsorbedJoin(nn.Module):
    """The single joined layer, computed for [CLS] alone on stored tokens, plus late interaction."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        compressor = _compressor(model)
        last: EncoderLayer = model.layers[-1]  # type: ignore[assignment]
        hidden, qkv = model.config.hidden, last.attention.qkv
        self.heads, self.part = model.config.heads, hidden // model.config.heads
        self.query = _linear(qkv.weight[:hidden], qkv.bias[:hidden])
        self.key_value = _linear(qkv.weight[hidden:], qkv.bias[hidden:])
        self.document = _Absorbed(compressor, qkv.weight[hidden:], qkv.bias[hidden:])
        self.late = _Compared(compressor, model.late) if model.late is not None else None
        self.lengths = _Scale(compressor, None if self.late is None else self.late.document)
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
        present = torch.cat([query_mask.expand(count, -1), mask], 1)
        shares = (
            (logits + (1.0 - present[:, :, None].to(logits.dtype)) * MASKED_LOGIT).softmax(1).transpose(1, 2)
        )
        length = query.shape[1]
        of_query, of_document = shares[:, :, :length], shares[:, :, length:]  # [B, n, Lq], [B, n, Ld]
        by_scale = of_document * inverse.transpose(1, 2)
        gathered = by_scale @ stored  # [B, n, e]
        attended = (matrix[1] @ gathered[..., None]).squeeze(-1)  # [B, n, d]
        attended = attended + shift[1].squeeze(-1) * by_scale.sum(-1, keepdim=True)
        attended = attended + rest[1].squeeze(-1) * of_document.sum(-1, keepdim=True)
        values_by_head = values.reshape(-1, self.heads, self.part).transpose(0, 1)  # [n, Lq, d]
        attended = attended + (of_query[:, :, None, :] @ values_by_head).squeeze(2)
        return attended.flatten(1), shares

    def _by_head(self, row: Tensor) -> Tensor:
        return row.reshape(self.heads, self.part)


class _Absorbed(nn.Module):
    """A linear layer over restored token embeddings, applied to stored ones: M, m and w of the module's docstring."""

    matrix: Tensor
    shift: Tensor
    rest: Tensor

    # L, float [out, H], and l, float [out]
    def __init__(self, compressor: Compressor, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        up, norm = compressor.up, compressor.norm
        matrix, centre = _centred(up)
        scaled = weight.double() * norm.weight.double()
        self.register_buffer("matrix", (scaled @ matrix).float())  # M, [out, e]
        self.register_buffer("shift", (scaled @ centre).float())  # m, [out]
        rest = weight.double() @ norm.bias.double() + bias.double()
        self.register_buffer("rest", rest.float())  # w, [out]


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
        products = self.products(stored)
        variance = (products[..., : self.size] * stored).sum(-1, keepdim=True) + self.variance
        inverse = variance.clamp_min(_LEAST).rsqrt()
        if products.shape[-1] == self.size:
            return inverse, torch.ones_like(inverse)
        own = (products[..., self.size : 2 * self.size] * stored).sum(-1, keepdim=True) + self.own
        squared = own * inverse**2 + 2.0 * products[..., 2 * self.size :] * inverse + self.rest
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


def _compressor(model: CrossEncoder) -> Compressor:
    assert model.compressor is not None  # noqa: S101 - checked above
    return model.compressor


def _centred(up: nn.Linear) -> tuple[Tensor, Tensor]:
    """P·U, float64 [H, e], and P·c, float64 [H]."""
    matrix, centre = up.weight.detach().double(), up.bias.detach().double()
    return matrix - matrix.mean(0, keepdim=True), centre - centre.mean()


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer
