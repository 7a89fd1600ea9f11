"""Token sequences of many texts on one device, from which padded batches are cut.

T   tokens of all texts        N   texts        n   texts of a batch        L   tokens of the longest
"""

from contextlib import AbstractContextManager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glow.nn import Tower
from glow.training.run import autocast

__all__ = ["Flat", "mixed", "to_bytes"]

BATCH_TOKENS = 262_144
OCTAVE, ZERO, LEAST = 16, 176, 1e-3


def to_bytes(weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Logarithms of weights in 8 bits: 16 steps for each factor of 2, from 0.001 to 30."""
    steps = np.round(np.log2(np.maximum(weights, LEAST)) * OCTAVE) + ZERO
    return np.asarray(np.clip(steps, 0, 255), np.uint8)


def mixed(device: torch.device, precision: str = "bf16") -> AbstractContextManager[None]:
    """A context whose matrix products have 16 bits on a GPU and 32 bits on a CPU."""
    return autocast(precision if device.type == "cuda" else "fp32", device)()


class Flat:
    """Token sequences.

    Args:
        pad_id: id of the padding.
        ids: int32 [T].
        lengths: int64 [N].
        weights: uint8 [T] of `to_bytes`; None: all are 1.
        fields: uint8 [T]; None: all are 0.
    """

    def __init__(
        self,
        pad_id: int,
        ids: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        fields: Tensor | None = None,
    ) -> None:
        self.pad_id, self.ids, self.lengths, self.weights, self.fields = pad_id, ids, lengths, weights, fields
        self._starts = lengths.cumsum(0) - lengths

    def batch(self, rows: Tensor, most: int, step: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A tower's arguments for these rows [n, L], cut at `most` tokens and padded to a multiple of `step`."""
        lengths = self.lengths[rows].clamp(max=most)
        places = torch.arange(min(most, -(-int(lengths.max()) // step) * step), device=rows.device)
        mask = places < lengths[:, None]
        at = (self._starts[rows][:, None] + places).clamp(max=len(self.ids) - 1)
        ids = torch.where(mask, self.ids[at].long(), self.pad_id)
        fields = (
            torch.zeros_like(ids) if self.fields is None else torch.where(mask, self.fields[at].long(), 0)
        )
        weights = torch.ones(ids.shape, device=ids.device)
        if self.weights is not None:
            weights = torch.where(mask, torch.exp2((self.weights[at].float() - ZERO) / OCTAVE), weights)
        return ids, mask.long(), fields, weights

    @torch.no_grad()
    def encode(self, tower: Tower) -> Tensor:
        """Vectors of all texts by a tower on the same device, float16 [N, dimensions]."""
        device, most, start = self.ids.device, tower.positions.num_embeddings, 0
        found = torch.empty(len(self.lengths), tower.dimensions, dtype=torch.float16, device=device)
        order = torch.argsort(self.lengths, descending=True)
        while start < len(order):
            longest = min(most, int(self.lengths[order[start]]))
            rows = order[start : start + max(1, BATCH_TOKENS // longest)]
            start += len(rows)
            with mixed(device, "fp16"):
                found[rows] = tower(*self.batch(rows, most)).half()
        return found
