"""Encodes the texts of one step in groups of similar length, with gradient caching for batches larger than memory.

Gradient caching (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup") encodes
the batch without gradients and takes the loss's gradient of the vectors. It then encodes group after group again, each
with its part of that gradient. The result is the whole batch's gradient except for rounding.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from glow.nn import Tower
from glow.text import WeightedTokens, pad

__all__ = ["CachedBatch", "Encoding", "encode"]

GROUP_TEXTS, LENGTH_STEP = 16, 16
"""Texts per group, and the multiple that its length is rounded up to. Each distinct shape costs memory permanently in
the CPU's kernels (a long run grew to several times its size), so there are few shapes, and little padding."""
Autocast = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of a batch.

    Attributes:
        pad_id: id of [PAD].
        device: device of the towers.
        autocast: context of the matrix products' precision.
        chunk_size: most texts per group in gradient caching.
    """

    pad_id: int
    device: torch.device
    autocast: Autocast
    chunk_size: int = 0

    def run(self, tower: Tower, sequences: Sequence[WeightedTokens]) -> Tensor:
        """Vectors float32 [n, H] of one group, padded to its longest text."""
        longest = max(len(sequence) for sequence in sequences)
        rounded = -(-longest // LENGTH_STEP) * LENGTH_STEP
        batch = pad(sequences, self.pad_id, min(rounded, tower.max_tokens))
        inputs = (batch.ids, batch.mask, batch.field_ids, batch.weights)
        with self.autocast():
            return tower(*(torch.from_numpy(array).to(self.device) for array in inputs)).float()  # type: ignore[no-any-return]


def encode(encoding: Encoding, tower: Tower, sequences: Sequence[WeightedTokens]) -> Tensor:
    """Vectors float32 [n, H] of a batch, with gradients."""
    groups = _groups(sequences, GROUP_TEXTS)
    encoded = torch.cat([encoding.run(tower, [sequences[row] for row in rows]) for rows in groups])
    order = torch.tensor([row for rows in groups for row in rows], device=encoded.device)
    return encoded[torch.argsort(order)]


class CachedBatch:
    """Vectors of one side of a batch, encoded without gradients, that can be encoded again with gradients.

    Args:
        encoding: the encoding; `chunk_size` texts of similar length form a group.
        tower, sequences: the tower and its texts.

    Attributes:
        vectors: float32 [n, H], a leaf that collects the loss's gradient.
    """

    def __init__(self, encoding: Encoding, tower: Tower, sequences: Sequence[WeightedTokens]) -> None:
        self._encoding, self._tower, self._sequences = encoding, tower, sequences
        self._groups = _groups(sequences, encoding.chunk_size)
        order = [row for rows in self._groups for row in rows]
        self._random = []  # dropout must be equal both times
        blocks = []
        with torch.no_grad():
            for rows in self._groups:
                self._random.append(_random_state(encoding.device))
                blocks.append(encoding.run(tower, [sequences[row] for row in rows]))
        self.vectors = torch.cat(blocks)[torch.argsort(torch.tensor(order, device=encoding.device))]
        self.vectors.requires_grad_()

    def backward(self) -> None:
        """Propagates the loss's gradient of the vectors through the tower."""
        gradient = self.vectors.grad
        if gradient is None or not next(self._tower.layers.parameters()).requires_grad:
            return
        for rows, state in zip(self._groups, self._random, strict=True):
            _set_random_state(self._encoding.device, state)
            encoded = self._encoding.run(self._tower, [self._sequences[row] for row in rows])
            encoded.backward(gradient[rows])  # type: ignore[no-untyped-call]


def _groups(sequences: Sequence[WeightedTokens], size: int) -> list[list[int]]:
    """Positions in groups of similar length, longest first."""
    order = sorted(range(len(sequences)), key=lambda number: -len(sequences[number]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
