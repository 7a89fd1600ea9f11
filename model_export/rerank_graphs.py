"""Exports a re-ranker as ONNX graphs: query and document up to layer l, both joined, and late interaction alone.

The products are arranged for serving and equal those of `CrossEncoder`: the last layer computes [CLS] alone. With one
joined layer, keys and values of the query are computed once for all documents.

    B   documents       Lq, Ld  tokens of a query, of a document        H   hidden size     e   numbers of a token
"""

import torch
from onnx import ModelProto
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from glow.artifact import DOCUMENT_READER, JOIN_GRAPH, LATE_GRAPH, QUERY_READER
from glow.errors import ExportError
from glow.nn import MASKED_LOGIT, CrossEncoder, EncoderLayer, LateInteraction
from glow_model_export.absorbed import AbsorbedJoin, AbsorbedLate, can_absorb
from glow_model_export.graph import MAX_BATCH, trace

__all__ = ["PAIR_INPUTS", "RERANK_GRAPHS", "export_rerank_graphs"]

RERANK_GRAPHS = (QUERY_READER, DOCUMENT_READER, JOIN_GRAPH, LATE_GRAPH)
"""File -> inputs and outputs: `ids`, `mask` (and `field_ids`) -> `states` (`stored`); `PAIR_INPUTS` -> `score`, and of the joined layers
`attention`. The last only with late interaction."""
PAIR_INPUTS = ("query", "query_mask", "stored", "mask")
_LENGTHS = (5, 7)


def export_rerank_graphs(model: CrossEncoder) -> dict[str, ModelProto]:
    """Exports a re-ranker in float32 with dynamic batch and lengths.

    Args:
        model: in evaluation mode, on the CPU, l >= 1, without word weights.

    Returns:
        File name -> graph. Queries: int64 [1, Lq] `ids` and `mask` -> float32 [1, Lq, H]. Documents: int64 [B, Ld] each -> float32
        [B, Ld, e]. Pairs: float32 [1, Lq, H], int64 [1, Lq], float32 [B, Ld, e], int64 [B, Ld] -> float32 [B], and attention of [CLS] in
        the last layer, mean over heads, float32 [B, Lq + Ld].

    Raises:
        ExportError: if the model stores nothing (l = 0), or reads word weights.
    """
    config = model.config
    if not config.split or config.weight_form != "plain":
        raise ExportError(
            f"split {config.split} and weight_form {config.weight_form!r}: only a re-ranker that stores documents (split >= 1) and "
            "reads no word weights can be exported"
        )
    batch = Dim("batch", min=1, max=MAX_BATCH)
    short = Dim("query_length", min=2, max=config.query_tokens)
    long = Dim("length", min=2, max=config.document_tokens)
    query, document = (torch.ones(2, length, dtype=torch.int64) for length in _LENGTHS)
    one = query[:1]
    stored = torch.rand(2, _LENGTHS[1], config.compressed or config.hidden)
    pairs = (torch.rand(1, _LENGTHS[0], config.hidden), one, stored, document)
    pair_shapes = ({1: short}, {1: short}, {0: batch, 1: long}, {0: batch, 1: long})
    sides = [{0: batch, 1: long}] * 3
    texts = (document, document, torch.zeros_like(document))
    join, late = _pair_modules(model)
    graphs = [
        trace(_Query(model).eval(), (one, one), ("ids", "mask"), ("states",), [{1: short}] * 2),
        trace(_Document(model).eval(), texts, ("ids", "mask", "field_ids"), ("stored",), sides),
        trace(join.eval(), pairs, PAIR_INPUTS, ("score", "attention"), pair_shapes),
    ]
    if late is not None:
        graphs.append(trace(late.eval(), pairs, PAIR_INPUTS, ("score",), pair_shapes))
    return dict(zip(RERANK_GRAPHS, graphs, strict=False))


def _pair_modules(model: CrossEncoder) -> tuple[nn.Module, nn.Module | None]:
    """The graph that scores pairs, and late interaction if the model has it."""
    with torch.no_grad():
        if can_absorb(model):
            return AbsorbedJoin(model), AbsorbedLate(model) if model.late is not None else None
        return _Join(model), _Late(_Restored(model), model.late) if model.late is not None else None


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
        self.compressor = model.compressor

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.states(ids, mask, torch.zeros_like(ids), 0)
        return states if self.compressor is None else self.compressor(states)


class _Document(_Apart):
    def __init__(self, model: CrossEncoder) -> None:
        super().__init__(model)
        self.down = None if model.compressor is None else model.compressor.down
        self.start = model.config.query_tokens

    def forward(self, ids: Tensor, mask: Tensor, field_ids: Tensor) -> Tensor:
        states = self.states(ids, mask, field_ids + 1, self.start)
        return states if self.down is None else functional.gelu(self.down(states))


class _Restored(nn.Module):
    """Restores stored numbers to H numbers per token."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        compressor = model.compressor
        self.up = None if compressor is None else compressor.up
        self.norm = None if compressor is None else compressor.norm

    def forward(self, stored: Tensor) -> Tensor:
        return stored if self.up is None or self.norm is None else self.norm(self.up(stored))


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


class _Late(nn.Module):
    """Late interaction over stored numbers."""

    def __init__(self, restored: nn.Module, late: LateInteraction) -> None:
        super().__init__()
        self.restored, self.similarity = restored, _Similarity(late)

    def forward(self, query: Tensor, query_mask: Tensor, stored: Tensor, mask: Tensor) -> Tensor:
        return self.similarity(query, query_mask, self.restored(stored), mask)  # type: ignore[no-any-return]


class _Join(nn.Module):
    """Layers l + 1 to n, the last for [CLS] alone, plus late interaction."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.restored = _Restored(model)
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
        document = self.restored(stored)
        count = stored.shape[0]
        kept = torch.cat([query_mask.expand(count, -1), mask], 1)
        bias = (1.0 - kept[:, None, None, :].to(query.dtype)) * MASKED_LOGIT
        if len(self.between):
            x = torch.cat([query.expand(count, -1, -1), document], 1)
            plain = torch.ones_like(kept, dtype=x.dtype)
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


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A new linear layer from a part of another's weights."""
    made = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(bias)
    return made
