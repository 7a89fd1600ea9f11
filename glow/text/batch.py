"""Batches of weighted tokens: padded input of a tower, and groups of sequences of similar length.

B is the number of sequences in a batch, L the number of tokens of the longest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.text.lexical import is_lexical
from glow.text.preprocessor import WeightedTokens

__all__ = ["Batch", "batches_by_length", "lexical_tokens", "pad"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tower input.

    Attributes:
        ids, field_ids: int64 [B, L], padded at the end.
        mask: int64 [B, L], 1 for tokens and 0 for padding.
        weights: float32 [B, L], 1 on padding (docs/papers.md, row 3), which the mask hides.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]
    field_ids: NDArray[np.int64]
    weights: NDArray[np.float32]


def pad(sequences: Sequence[WeightedTokens], pad_id: int, length: int = 0) -> Batch:
    """Pads sequences at the end to the longest of them, or to `length` if it is greater; needs at least one."""
    shape = (len(sequences), max(max(len(sequence) for sequence in sequences), length))
    ids = np.full(shape, pad_id, np.int64)
    mask, field_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    weights = np.ones(shape, np.float32)
    for row, sequence in enumerate(sequences):
        length = len(sequence)
        ids[row, :length] = sequence.ids
        mask[row, :length] = 1
        field_ids[row, :length] = sequence.field_ids
        weights[row, :length] = sequence.weights
    return Batch(ids, mask, field_ids, weights)


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Groups positions into batches of similar length, longest first.

    Every batch has at most `max_tokens` tokens including padding (a longer sequence is alone), so one long
    text neither pads the others nor needs much memory.

    Args:
        lengths: tokens of each sequence.
        max_tokens: token limit of one batch, including padding.

    Yields:
        Positions in `lengths`, each once.
    """
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def lexical_tokens(sequence: WeightedTokens) -> NDArray[np.int64]:
    """Positions of the tokens whose words a lexical index holds, int64, ascending."""
    holds = np.array([*(is_lexical(word) for word in sequence.words), False])  # special tokens have index -1
    return np.flatnonzero(holds[sequence.word_ids])
