"""Pre-training of an encoder: the encoder itself, Cross-Thought's additional layers, and four objectives.

Source: Cross-Thought section 3, Eq. 1-7; released code as in docs/papers.md, Cross-Thought. A sequence is S_0 … S_{N-1} and its
tokens. Special tokens have their own embeddings and positions 0 … N-1, also after pre-training (row 34); a tower's [CLS] is the first.
After the encoder, Cross-Thought's cross-sequence layer attends, separately for each of the N special tokens, over all M
sequences of a sample; all N share its weights (the code). A merge layer reads the results in place of the special tokens;
its output predicts the masked tokens.

    B   samples     M   sequences of a sample       S   B · M       N   special tokens      L   subword tokens of a sequence
    n   heads       d   size of a head              H   hidden size Q, D    query sequences, ranked sequences
    T   masked tokens of all sequences
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.encoders import MASKED_LOGIT, LayerConfig
from glow.nn.towers import EncoderLayer, initialise


class SentenceConfig(LayerConfig):
    """Shape of an encoder in pre-training, whose attention has no weights."""

    specials: int = Field(default=5, ge=1)  # N
    positions: int = Field(default=512, ge=2)  # rows of the position table

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.specials >= self.positions:
            raise ValueError(
                f"{self.specials} special tokens leave no position for words of {self.positions}"
            )
        return self

    def most_offset(self, length: int) -> int:
        """The largest offset of `length` tokens in the position table: 444 for 64 tokens, five special tokens, 512 rows."""
        return self.positions - self.specials - length + 1


class SentenceEncoder(nn.Module):
    """Encodes sequences into embeddings of their special and subword tokens."""

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.specials = nn.Embedding(config.specials, config.hidden)
        self.positions = nn.Embedding(config.positions, config.hidden)
        self.segment = nn.Parameter(torch.zeros(config.hidden))
        self.embedding_norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config.tower("plain")) for _ in range(config.layers))

    def forward(self, ids: Tensor, mask: Tensor, offset: int = 1) -> Tensor:
        """Last hidden states float [S, N + L, H], the special tokens first.

        `ids` are int64 [S, L], `mask` bool [S, L], True for tokens; special tokens are always present. With `offset` r >= 1, tokens have
        positions N - 1 + r, N + r, … (row 34).
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
    """RoBERTa's output head: a layer, then a product with the token embedding matrix [vocabulary, H], which the encoder shares."""

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


class CrossThought(nn.Module):
    """An encoder with the two additional layers of pre-training, of the same shape."""

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = SentenceEncoder(config)
        self.cross = EncoderLayer(config.tower("plain"))
        self.merge = EncoderLayer(config.tower("plain"))

    def forward(self, ids: Tensor, mask: Tensor, sequences: int, offset: int = 1) -> Tensor:
        """Embeddings of every token, float [S, L, H], with information from the other sequences of its sample.

        Arguments as for `SentenceEncoder`, samples one after another, M `sequences` each. None attends to one with only padding.
        """
        return self.joined(self.encoder(ids, mask, offset), mask, sequences)

    def joined(self, states: Tensor, mask: Tensor, sequences: int) -> Tensor:
        """What `forward` makes of the encoder's states float [S, N + L, H]."""
        count = self.config.specials
        crossed = self.crossed(states[:, :count], mask.any(1), sequences).to(states.dtype)
        merged = torch.cat([crossed, states[:, count:]], 1)
        plain = torch.ones(merged.shape[:2], device=mask.device)
        return self.merge(merged, plain, masked_bias(mask, count))[:, count:]  # type: ignore[no-any-return]

    def crossed(self, specials: Tensor, there: Tensor, sequences: int) -> Tensor:
        """The cross-sequence layer (Eq. 3-4) over special tokens float [S, N, H], `there` bool [S]; float32 [S, N, H].

        It runs in float32, in which the fused kernel's memory grows with M and not with its square; the layer is small.
        """
        count, hidden = specials.shape[1:]
        with torch.autocast(specials.device.type, enabled=False):
            columns = specials.float().reshape(-1, sequences, count, hidden).transpose(1, 2)  # [B, N, M, H]
            rows = columns.reshape(-1, sequences, hidden)
            bias = (~there.reshape(-1, 1, sequences)) * MASKED_LOGIT  # [B, 1, M]
            bias = bias.expand(-1, count, -1).reshape(-1, 1, 1, sequences)
            plain = torch.ones(rows.shape[:2], device=rows.device)
            crossed = self.cross(rows, plain, bias)
        back = crossed.reshape(-1, count, sequences, hidden).transpose(1, 2)
        return back.reshape(-1, count, hidden)  # type: ignore[no-any-return]

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Sentence embeddings (Eq. 2): the encoder's special tokens, float32 [S, N, H]."""
        return self.encoder(ids, mask)[:, : self.config.specials].float()  # type: ignore[no-any-return]

    def ranking_vectors(self, specials: Tensor, side: str) -> Tensor:
        """Vectors whose inner product is the mean of the attention logits over special tokens and heads (Eq. 7, row 33).

        From special tokens float [S, N, H] of a `query` or `document`; float32 [S, N · H]. Any vector index can search them.
        """
        hidden = self.config.hidden
        begin = 0 if side == "query" else hidden
        weight, shift = self.cross.attention.qkv.weight, self.cross.attention.qkv.bias
        rows = slice(begin, begin + hidden)
        projected: Tensor = nn.functional.linear(
            specials.float(), weight[rows].float(), shift[rows].float()
        ).flatten(1)
        if side != "query":
            return projected
        heads = self.config.heads
        scaled: Tensor = projected / ((hidden / heads) ** 0.5 * heads * self.config.specials)
        return scaled

    def logits(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Attention logits before any mean (Eq. 7), float32 [N · n, Q, D], from special tokens [Q, N, H] and [D, N, H].

        The scale is a head's size, as in the released code; the paper uses the whole hidden size.
        """
        parts = self.config.specials * self.config.heads
        rows = self.ranking_vectors(queries, "query") * parts
        columns = self.ranking_vectors(documents, "document")
        split = [vectors.reshape(len(vectors), parts, -1).transpose(0, 1) for vectors in (rows, columns)]
        return split[0] @ split[1].transpose(1, 2)


PretrainingKind = Literal["cross-thought", "mlm", "retro", "crops"]
CROP_TEMPERATURE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class PretrainingBatch:
    """The text of one step."""

    ids: Tensor  # int64 [S, L], the original subword tokens
    mask: Tensor  # bool [S, L], True for tokens
    masked: Tensor  # int64 [S, L], the encoder's input: some tokens are masked or replaced
    targets: Tensor  # bool [S, L], the tokens to predict
    decoded: Tensor  # int64 [S, L], the decoder's input, with more masks; equal to `masked` without a decoder
    decoder_targets: Tensor  # bool [S, L]
    crops: Tensor  # int64 [2, S], starts of a sequence's two crops
    sequences: int  # M, of a sample
    offset: int  # of the tokens' positions

    def to(self, device: torch.device) -> "PretrainingBatch":
        """The batch on another device."""
        names = ("ids", "mask", "masked", "targets", "decoded", "decoder_targets", "crops")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


class Pretrainer(nn.Module):
    """An encoder with the additional layers of one objective.

    - `cross-thought`: predicts masked words from neighbors' embeddings (`glow.nn.pretraining`).
    - `mlm`: predicts masked words from their own sequence (BERT, RoBERTa).
    - `retro`: `mlm`, and a decoder of one layer predicts half of the sequence from the first special token and few
      unmasked tokens (RetroMAE, Xiao et al. 2022, its basic form).
    - `crops`: no masked words; a sequence's two crops must find each other within the batch (Contriever, Izacard et al.
      2022; with only dropout as the difference, SimCSE).
    """

    def __init__(self, kind: PretrainingKind, config: SentenceConfig, bag: float = 0.0) -> None:
        super().__init__()
        self.kind = kind
        self.bag = bag  # weight of a second loss of `cross-thought`: special tokens alone predict their sequence's words
        self.config = config
        self.crossed = CrossThought(config) if kind == "cross-thought" else None
        self.alone = SentenceEncoder(config) if self.crossed is None else None
        self.decoder = EncoderLayer(config.tower("plain")) if kind == "retro" else None
        self.head = MaskedWordHead(self.encoder.words, config.layer_norm_eps) if kind != "crops" else None
        self.apply(initialise)

    @property
    def encoder(self) -> SentenceEncoder:
        """The part that becomes a tower."""
        encoder = self.alone if self.crossed is None else self.crossed.encoder
        assert encoder is not None  # noqa: S101 - one of the two always exists
        return encoder

    def forward(self, batch: PretrainingBatch) -> Tensor:
        """The loss of a batch, a scalar: mean over masked pieces, or over crops."""
        if self.kind == "crops":
            return self._crops(batch)
        count = self.config.specials
        states = self.encoder(batch.masked, batch.mask, batch.offset)
        if self.crossed is not None:
            joined = self.crossed.joined(states, batch.mask, batch.sequences)
            loss = self._recovered(joined, batch.ids, batch.targets)
            return loss + self.bag * self._bag_loss(states[:, :count], batch) if self.bag else loss
        loss = self._recovered(states[:, count:], batch.ids, batch.targets)
        if self.decoder is None:
            return loss
        return loss + self._recovered(self._decoded(states[:, 0], batch), batch.ids, batch.decoder_targets)

    def _recovered(self, states: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
        assert self.head is not None  # noqa: S101 - every objective but crops has one
        return functional.cross_entropy(self.head(states[targets]).float(), ids[targets])

    def _bag_loss(self, specials: Tensor, batch: PretrainingBatch) -> Tensor:
        """Mean loss of a sequence's visible tokens, each predicted from the mean of its special tokens float [S, N, H]."""
        assert self.head is not None  # noqa: S101 - as above
        surprise = -self.head(specials.mean(1)).float().log_softmax(-1).gather(1, batch.ids)
        visible = batch.mask & ~batch.targets
        loss: Tensor = (surprise * visible).sum() / visible.sum().clamp(min=1)
        return loss

    def _decoded(self, embedding: Tensor, batch: PretrainingBatch) -> Tensor:
        """Output float [S, L, H] of a weak decoder: the sequence's embedding takes the place of the special tokens."""
        x = self.encoder.embed(batch.decoded, batch.offset)
        x = torch.cat([embedding[:, None].to(x.dtype), x[:, self.config.specials :]], 1)
        plain = torch.ones(x.shape[:2], device=x.device)
        assert self.decoder is not None  # noqa: S101 - only called with a decoder
        return self.decoder(x, plain, masked_bias(batch.mask, 1))[:, 1:]  # type: ignore[no-any-return]

    def _crops(self, batch: PretrainingBatch) -> Tensor:
        half = batch.ids.shape[1] // 2
        steps = torch.arange(half, device=batch.ids.device)
        vectors = []
        for starts in batch.crops:
            places = starts[:, None] + steps
            mask = batch.mask.gather(1, places)
            states = self.encoder(batch.ids.gather(1, places), mask, 1).float()
            share = functional.pad(mask, (self.config.specials, 0), value=True)[..., None].float()
            vectors.append(functional.normalize((states * share).sum(1) / share.sum(1), dim=-1))
        return crop_loss(*vectors)


def crop_loss(first: Tensor, second: Tensor) -> Tensor:
    """Cross-entropy of finding each crop's counterpart in the batch, both ways; float [S, H] each, L2-normalized -> a scalar."""
    logits = first @ second.T / CROP_TEMPERATURE
    own = torch.arange(len(logits), device=logits.device)
    return (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)) / 2
