"""Pre-training objectives of an encoder: four of them, over the same batches of contiguous text, with one interface.

S   sequences       L   tokens of a sequence        N   special tokens      H   hidden size     T   masked tokens
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.nn.cross_thought import CrossThought
from glow.nn.sentence_encoder import MaskedWordHead, SentenceConfig, SentenceEncoder, masked_bias
from glow.nn.towers import EncoderLayer, initialise

__all__ = ["Pretrainer", "PretrainingBatch", "PretrainingKind", "crop_loss"]

PretrainingKind = Literal["cross-thought", "mlm", "retro", "crops"]
CROP_TEMPERATURE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class PretrainingBatch:
    """The text of one step.

    Attributes:
        ids: int64 [S, L], the original subword tokens.
        mask: bool [S, L], True for tokens.
        masked: int64 [S, L], the encoder's input: some tokens are masked or replaced.
        targets: bool [S, L], the tokens to predict.
        decoded: int64 [S, L], the decoder's input, with more masks; equal to `masked` without a decoder.
        decoder_targets: bool [S, L].
        crops: int64 [2, S], starts of a sequence's two crops.
        sequences: M, of a sample.
        offset: of the tokens' positions.
    """

    ids: Tensor
    mask: Tensor
    masked: Tensor
    targets: Tensor
    decoded: Tensor
    decoder_targets: Tensor
    crops: Tensor
    sequences: int
    offset: int

    def to(self, device: torch.device) -> "PretrainingBatch":
        """The batch on another device."""
        names = ("ids", "mask", "masked", "targets", "decoded", "decoder_targets", "crops")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


class Pretrainer(nn.Module):
    """An encoder with the additional layers of one objective.

    - `cross-thought`: predicts masked words from neighbors' embeddings (`glow.nn.cross_thought`).
    - `mlm`: predicts masked words from their own sequence (BERT, RoBERTa).
    - `retro`: `mlm`, and a decoder of one layer predicts half of the sequence from the first special token and few
      unmasked tokens (RetroMAE, Xiao et al. 2022, its basic form).
    - `crops`: no masked words; a sequence's two crops must find each other within the batch (Contriever, Izacard et al.
      2022; with only dropout as the difference, SimCSE).

    Args:
        kind: the objective.
        config: shape of the encoder.
        bag: weight of a second loss of `cross-thought`: special tokens alone tell the words of their sequence.
    """

    def __init__(self, kind: PretrainingKind, config: SentenceConfig, bag: float = 0.0) -> None:
        super().__init__()
        self.kind = kind
        self.bag = bag
        self.config = config
        self.crossed = CrossThought(config) if kind == "cross-thought" else None
        self.alone = SentenceEncoder(config) if self.crossed is None else None
        self.decoder = EncoderLayer(config.layer) if kind == "retro" else None
        self.head = MaskedWordHead(self.encoder.words, config.layer_norm_eps) if kind != "crops" else None
        self.apply(initialise)

    @property
    def encoder(self) -> SentenceEncoder:
        """The part that becomes a tower."""
        found = self.alone if self.crossed is None else self.crossed.encoder
        assert found is not None  # noqa: S101 - one of the two always exists
        return found

    def forward(self, batch: PretrainingBatch) -> Tensor:
        """The loss of a batch, a scalar: mean over masked pieces, or over crops."""
        if self.kind == "crops":
            return self._crops(batch)
        if self.crossed is not None:
            states = self.encoder(batch.masked, batch.mask, batch.offset)
            joined = self.crossed.joined(states, batch.mask, batch.sequences)
            loss = self._recovered(joined, batch.ids, batch.targets)
            return (
                loss + self.bag * self._told(states[:, : self.config.specials], batch) if self.bag else loss
            )
        states = self.encoder(batch.masked, batch.mask, batch.offset)
        pieces = states[:, self.config.specials :]
        loss = self._recovered(pieces, batch.ids, batch.targets)
        if self.decoder is None:
            return loss
        return loss + self._recovered(self._decoded(states[:, 0], batch), batch.ids, batch.decoder_targets)

    def _recovered(self, states: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
        assert self.head is not None  # noqa: S101 - every objective but crops has one
        return functional.cross_entropy(self.head(states[targets]).float(), ids[targets])

    def _told(self, specials: Tensor, batch: PretrainingBatch) -> Tensor:
        """Mean loss of a sequence's visible tokens, each told from the mean of its special tokens float [S, N, H]."""
        assert self.head is not None  # noqa: S101 - as above
        surprise = -self.head(specials.mean(1)).float().log_softmax(-1).gather(1, batch.ids)
        visible = batch.mask & ~batch.targets
        told: Tensor = (surprise * visible).sum() / visible.sum().clamp(min=1)
        return told

    def _decoded(self, embedding: Tensor, batch: PretrainingBatch) -> Tensor:
        """Output float [S, L, H] of a weak decoder: the sequence's embedding takes the place of the special tokens."""
        count = self.config.specials
        given = self.encoder.embed(batch.decoded, batch.offset)
        given = torch.cat([embedding[:, None].to(given.dtype), given[:, count:]], 1)
        plain = torch.ones(given.shape[:2], device=given.device)
        assert self.decoder is not None  # noqa: S101 - only called with a decoder
        return self.decoder(given, plain, masked_bias(batch.mask, 1))[:, 1:]  # type: ignore[no-any-return]

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
