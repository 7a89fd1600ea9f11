"""PreTTR: a cross-encoder whose first l layers read query and document apart, so that documents can be processed in advance.

Source: PreTTR section 4; released code as in docs/papers.md 3. A sequence is `[CLS] query [SEP]`, then the
document's fields, each with its [SEP]. Layers 1 to l process the two apart, layers l + 1 to n together. The last layer
computes only [CLS], which gives the score. A document's positions begin after the longest possible query (row 24), so its
token embeddings depend neither on the query nor on the rest of the batch.

    B   pairs       Lq, Ld  tokens of a query, of a document        L   Lq + Ld
    H   hidden size     e   stored numbers per token     n, l   number of all layers, of layers apart      p   dimensions that late interaction compares
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.encoders import MASKED_LOGIT, LayerConfig, TowerConfig
from glow.nn.attention import WeightedSelfAttention
from glow.nn.towers import EncoderLayer

START_SCALE = 20.0


class CrossConfig(LayerConfig):
    """Shape of a cross-encoder; dropout is also that of the input of the score."""

    layers: int = Field(default=6, ge=1)  # n
    # l, layers that read query and document apart; 0: a plain cross-encoder
    split: int = Field(default=0, ge=0)
    compressed: int = Field(default=0, ge=0)  # e; 0 stores token embeddings uncompressed
    # p. If above 0, the score starts as late interaction after layer l, and the joined layers learn to add to it
    late: int = Field(default=0, ge=0)
    query_tokens: int = Field(ge=3)  # longest query with [CLS] and [SEP]; positions of documents begin there
    document_tokens: int = Field(ge=2)  # longest document
    fields: int = Field(ge=1)  # of a document; each has an embedding, in place of BERT's second segment
    # BM25 weights in the joined layers: their logarithms times a learned gain per head, which starts at 0, or none (`plain`)
    weight_form: Literal["plain", "log"] = "plain"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.split >= self.layers:
            raise ValueError(
                f"split {self.split} of {self.layers} layers: at least one must join query and document, or the score "
                "ignores the document"
            )
        if self.compressed and not self.split:
            raise ValueError(
                "compressed needs a split of at least 1: token embeddings are stored after the layers apart"
            )
        return self

    def layer(self, number: int) -> TowerConfig:
        """Shape of a layer, numbered from 0: weights only enter the joined layers."""
        return self.tower(self.weight_form if number >= self.split else "plain")


class Side(NamedTuple):
    """One side of the pairs, after some layer."""

    states: Tensor  # float [B, L, H]
    mask: Tensor  # bool [B, L], True for tokens
    weights: Tensor  # float [B, L], >= 0, of the words; 1 if they are not used


class Compressor(nn.Module):
    """Maps token embeddings of H `hidden` numbers to e `size` numbers and back.

    Source: PreTTR section 4.2; its released code puts it after layer l, for every token, including the query's
    (docs/papers.md 3). The numbers after GELU are stored.
    """

    def __init__(self, hidden: int, size: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, size)
        self.up = nn.Linear(size, hidden)
        self.norm = nn.LayerNorm(hidden, eps=eps)

    def compress(self, states: Tensor) -> Tensor:
        """Float [..., H] -> float [..., e], each number at least -0.17 (GELU's minimum)."""
        return functional.gelu(self.down(states))

    def restore(self, stored: Tensor) -> Tensor:
        """Float [..., e] -> float [..., H]."""
        return self.norm(self.up(stored))  # type: ignore[no-any-return]

    def forward(self, states: Tensor) -> Tensor:
        """`restore(compress(states))`, float [..., H]."""
        return self.restore(self.compress(states))


class LateInteraction(nn.Module):
    """Every query token's most similar document token, summed up: the score that the joined layers correct.

    Source: ColBERT (Khattab and Zaharia 2020). Departs from it: each query token has a learned weight instead of 1.
    """

    def __init__(self, hidden: int, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(hidden, size, bias=False)
        self.importance = nn.Linear(hidden, 1)
        self.scale = nn.Parameter(torch.full((1,), START_SCALE))
        # Orthogonal directions keep angles as well as so few can; all tokens start with the same weight.
        nn.init.orthogonal_(self.project.weight)
        nn.init.zeros_(self.importance.weight)
        nn.init.zeros_(self.importance.bias)

    def forward(self, query: Tensor, query_mask: Tensor, document: Tensor, document_mask: Tensor) -> Tensor:
        """The weighted mean over query tokens of the largest cosine, times the scale: float32 [B].

        From float [B, Lq, H] and [B, Ld, H], and masks bool [B, Lq] and [B, Ld], True for at least one token each. A single query is
        paired with every document.
        """
        ours = functional.normalize(self.project(query).float(), dim=-1)
        theirs = functional.normalize(self.project(document).float(), dim=-1)
        cosines = ours @ theirs.transpose(1, 2)  # [B, Lq, Ld]
        nearest = cosines.masked_fill(~document_mask[:, None, :], -1.0).max(-1).values
        heights = self.importance(query).squeeze(-1).float().masked_fill(~query_mask, -torch.inf)
        return self.scale * (heights.softmax(-1) * nearest).sum(-1)  # type: ignore[no-any-return]


class CrossEncoder(nn.Module):
    """Scores pairs of a query and a document; the module's docstring describes it."""

    def __init__(self, config: CrossConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = nn.Embedding(config.query_tokens + config.document_tokens, config.hidden)
        self.segments = nn.Embedding(1 + config.fields, config.hidden)
        self.embedding_norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(EncoderLayer(config.layer(number)) for number in range(config.layers))
        self.compressor = (
            Compressor(config.hidden, config.compressed, config.layer_norm_eps) if config.compressed else None
        )
        self.late = LateInteraction(config.hidden, config.late) if config.late else None
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.hidden, 1)
        if self.late is not None:  # the joined layers are a correction, 0 at the start
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, query: Sequence[Tensor], document: Sequence[Tensor]) -> Tensor:
        """Scores of pairs, float32 [B], higher for a better document, from the arguments of `read_query` and `read_document`."""
        return self.score(self.read_query(*query), self.read_document(*document))

    def read_query(self, ids: Tensor, mask: Tensor, weights: Tensor) -> Side:
        """A query after layer l, and after the compressor if there is one (row 26).

        `ids` are int64 [B, Lq], from [CLS] to [SEP]; `mask` int64 [B, Lq], 1 for tokens; `weights` float [B, Lq].
        """
        return self.through(self.query_apart(ids, mask, weights))

    def read_document(self, ids: Tensor, mask: Tensor, field_ids: Tensor, weights: Tensor) -> Side:
        """A document after layer l, and after the compressor if there is one.

        `ids` and `field_ids` are int64 [B, Ld], without [CLS]; `mask` int64 [B, Ld], 1 for tokens; `weights` float [B, Ld].
        """
        return self.through(self.document_apart(ids, mask, field_ids, weights))

    def query_apart(self, ids: Tensor, mask: Tensor, weights: Tensor) -> Side:
        """As `read_query`, before the compressor."""
        embedded = self._embed(ids, torch.zeros_like(ids), 0)
        return Side(self._apart(embedded, mask.bool()), mask.bool(), weights)

    def document_apart(self, ids: Tensor, mask: Tensor, field_ids: Tensor, weights: Tensor) -> Side:
        """As `read_document`, before the compressor."""
        embedded = self._embed(ids, field_ids + 1, self.config.query_tokens)
        return Side(self._apart(embedded, mask.bool()), mask.bool(), weights)

    def through(self, side: Side) -> Side:
        """A side after compression and restoration; unchanged without a compressor."""
        return side if self.compressor is None else side._replace(states=self.compressor(side.states))

    def stored(self, ids: Tensor, mask: Tensor, field_ids: Tensor) -> Tensor:
        """The stored form of documents, float [B, Ld, e]; [B, Ld, H] without a compressor. Arguments as `read_document`."""
        states = self._apart(self._embed(ids, field_ids + 1, self.config.query_tokens), mask.bool())
        return states if self.compressor is None else self.compressor.compress(states)

    def restore(self, stored: Tensor, mask: Tensor, weights: Tensor) -> Side:
        """A document restored from its stored form; as `read_document` returns it."""
        states = stored if self.compressor is None else self.compressor.restore(stored)
        return Side(states, mask.bool(), weights)

    def score(self, query: Side, document: Side) -> Tensor:
        """Layers l + 1 to n over both sides, and the score, float32 [B]."""
        x, weights, bias = _joined(query, document)
        joined = self.layers[self.config.split :]
        for layer in joined[:-1]:
            x = layer(x, weights, bias)
        first = _first_row(joined[-1], x, weights, bias)  # type: ignore[arg-type]
        score: Tensor = self.head(self.dropout(first)).squeeze(-1).float()
        return score if self.late is None else score + self.late_score(query, document)

    def late_score(self, query: Side, document: Side) -> Tensor:
        """The late-interaction term of the score, float32 [B]; only if the shape has it."""
        if self.late is None:
            raise ValueError("this cross-encoder has no late interaction (late = 0)")
        return self.late(query.states, query.mask, document.states, document.mask)  # type: ignore[no-any-return]

    def attentions(self, query: Side, document: Side) -> list[Tensor]:
        """Attention of every joined layer, float [B, heads, L, L]; the compressor is trained to keep it (Table 1)."""
        x, weights, bias = _joined(query, document)
        attentions = []
        for layer in self.layers[self.config.split :]:
            attention: WeightedSelfAttention = layer.attention  # type: ignore[assignment]
            attentions.append(attention.probabilities(x, weights, bias))
            x = layer(x, weights, bias)
        return attentions

    def _embed(self, ids: Tensor, segments: Tensor, start: int) -> Tensor:
        positions = self.positions.weight[start : start + ids.shape[1]]
        return self.dropout(self.embedding_norm(self.words(ids) + positions + self.segments(segments)))  # type: ignore[no-any-return]

    def _apart(self, x: Tensor, mask: Tensor) -> Tensor:
        bias = (~mask[:, None, None, :]) * MASKED_LOGIT
        plain = torch.ones(mask.shape, device=x.device)
        for layer in self.layers[: self.config.split]:
            x = layer(x, plain, bias)
        return x


def _joined(query: Side, document: Side) -> tuple[Tensor, Tensor, Tensor]:
    """Both sides as one sequence: token embeddings [B, L, H], weights [B, L] and the bias of padding [B, 1, 1, L].

    If there is one query (B = 1), it is paired with every document.
    """
    pairs = document.states.shape[0]
    query = Side(*(part.expand(pairs, *part.shape[1:]) for part in query))
    states = torch.cat([query.states, document.states], 1)
    mask = torch.cat([query.mask, document.mask], 1)
    weights = torch.cat([query.weights, document.weights], 1)
    return states, weights, (~mask[:, None, None, :]) * MASKED_LOGIT


def _first_row(layer: EncoderLayer, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """The first token after a layer, float [B, H]: one row of queries against the keys of all tokens (row 27)."""
    attended = layer.attention.first_row(x, weights, bias)
    first = layer.attention_norm(x[:, 0] + layer.dropout(attended))
    inner = functional.gelu(layer.inner(first))
    return layer.output_norm(first + layer.dropout(layer.outer(inner)))  # type: ignore[no-any-return]
