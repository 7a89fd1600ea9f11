"""Samples: contiguous masked sequences of the stream; every choice depends only on seed, pass and step.

S   sequences of a step     L   tokens of a sequence        M   sequences of a sample
"""

import numpy as np
import torch
from numpy.typing import NDArray

from glow.nn import PretrainingBatch, SentenceConfig
from glow.text import WordPieces
from glow.training.pretraining.config import PretrainConfig
from glow.training.pretraining.stream import PieceStream

__all__ = ["Samples", "mask_pieces"]

MASK_SHARE, OTHER_SHARE = 0.8, 0.1
"""Fractions of the tokens to recover that become [MASK], and that become another token (BERT)."""
Ints = NDArray[np.int64]


class Samples:
    """Draws the batches of a run.

    A pass covers the whole stream once, in samples of M · L tokens. Their start shifts from pass to pass, so that no
    sequence is cut at the same place twice. Each pass draws a new order of samples, but not within them.

    Args:
        config: the run's configuration.
        stream: the text.
        shape: shape of the encoder, which limits positions.
        pieces: the vocabulary.
    """

    def __init__(
        self, config: PretrainConfig, stream: PieceStream, shape: SentenceConfig, pieces: WordPieces
    ) -> None:
        wanted = config.pretraining
        self._config, self._stream = config, stream
        self._sequences = wanted.sequences if wanted.kind == "cross-thought" else 1
        self._size = self._sequences * wanted.length
        self._offsets = shape.most_offset(wanted.length) if wanted.kind != "crops" else 1
        self._mask_id, self._pad_id = pieces.mask_id, pieces.pad_id
        self._special = np.array([pieces.sep_id, pieces.cls_id, pieces.pad_id])
        self._vocabulary = pieces.size
        self.per_pass = len(stream) // self._size
        self._drawn: tuple[int, Ints] = (-1, np.empty(0, np.int64))

    def steps(self, processes: int) -> int:
        """The configured number of steps."""
        return self._config.optimizer.steps

    def batch(self, step: int, process: int, processes: int) -> PretrainingBatch:
        """One process's samples of a step."""
        count = self._config.samples
        first = (step * processes + process) * count
        ids = np.concatenate([self._sample(number) for number in range(first, first + count)])
        random = np.random.default_rng([self._config.seed, 1, step, process])
        wanted = self._config.pretraining
        masked, targets = self._masked(ids, wanted.masked, random)
        decoded, decoder_targets = masked, targets
        if wanted.kind == "retro":
            decoded, decoder_targets = self._masked(ids, wanted.decoder_masked, random)
        crops = random.integers(0, wanted.length - wanted.length // 2 + 1, (2, len(ids)))
        offset = int(random.integers(1, self._offsets + 1))
        arrays = {
            "ids": ids,
            "mask": ids != self._pad_id,
            "masked": masked,
            "targets": targets,
            "decoded": decoded,
            "decoder_targets": decoder_targets,
            "crops": crops,
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return PretrainingBatch(**tensors, sequences=self._sequences, offset=offset)

    def _masked(self, ids: Ints, share: float, random: np.random.Generator) -> tuple[Ints, NDArray[np.bool_]]:
        return mask_pieces(ids, np.isin(ids, self._special), share, self._mask_id, self._vocabulary, random)

    def _sample(self, number: int) -> Ints:
        """The sample `number`, counted over all passes, int64 [M, L]."""
        turn, place = divmod(number, self.per_pass)
        if self._drawn[0] != turn:
            order = np.random.default_rng([self._config.seed, 0, turn]).permutation(self.per_pass)
            self._drawn = (turn, order)
        slack = len(self._stream) - self.per_pass * self._size
        shift = int(np.random.default_rng([self._config.seed, 2, turn]).integers(0, slack + 1))
        start = shift + int(self._drawn[1][place]) * self._size
        found = self._stream.pieces[start : start + self._size].astype(np.int64)
        return found.reshape(self._sequences, -1)


def mask_pieces(
    ids: Ints,
    special: NDArray[np.bool_],
    share: float,
    mask_id: int,
    vocabulary: int,
    random: np.random.Generator,
) -> tuple[Ints, NDArray[np.bool_]]:
    """Masks a text: returns the encoder's input, and which tokens to recover (section 3.1; 80/10/10 as released).

    Args:
        ids: int64 [S, L].
        special: bool [S, L], tokens that are never masked.
        share: fraction of the other tokens; their number is rounded at random, and at least 1.
        mask_id: id of [MASK].
        vocabulary: possible replacement tokens.
        random: the random generator.

    Returns:
        int64 [S, L] and bool [S, L].
    """
    places = np.flatnonzero(~special.ravel())
    count = max(1, int(share * len(places) + random.random()))
    chosen = random.choice(places, min(count, len(places)), replace=False)
    targets = np.zeros(ids.size, np.bool_)
    targets[chosen] = True
    read = ids.ravel().copy()
    fate = random.random(len(chosen))
    read[chosen[fate < MASK_SHARE]] = mask_id
    others = chosen[fate >= 1.0 - OTHER_SHARE]
    read[others] = random.integers(0, vocabulary, len(others))
    return read.reshape(ids.shape), targets.reshape(ids.shape)
