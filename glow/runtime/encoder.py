"""Encoding: weighted tokens to L2-normalised vectors, by a tower in ONNX.

    n   sequences       D   dimensions of a vector
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.runtime.session import Device, open_session
from glow.text.batch import batches_by_length, pad
from glow.text.preprocessor import WeightedTokens

__all__ = ["Encoder"]

DEFAULT_BATCH_TOKENS = 4096


class Encoder:
    """One tower, open on one device.

    Args:
        path: `query.onnx` or `document.onnx`.
        pad_id: id of [PAD] in the model's vocabulary.
        device: `cpu` or `cuda`.
        threads: intra-op threads.
        batch_tokens: most tokens of a batch, padding counted.

    Attributes:
        dimensions: D.

    Raises:
        DeviceError, FormatError: as `open_session`.
    """

    def __init__(
        self,
        path: Path,
        pad_id: int = 0,
        device: Device = "cpu",
        threads: int = 1,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
    ) -> None:
        self._session = open_session(path, device, threads)
        self._pad_id = pad_id
        self._batch_tokens = batch_tokens
        self.device = device
        self.dimensions = int(self._session.get_outputs()[0].shape[-1])
        self.providers: list[str] = self._session.get_providers()

    def encode(self, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
        """Encodes sequences in batches of like length.

        Returns:
            float32 [n, D], L2-normalised, row i for sequence i; [0, D] for none.
        """
        vectors = np.empty((len(sequences), self.dimensions), np.float32)
        for rows in batches_by_length([len(sequence) for sequence in sequences], self._batch_tokens):
            vectors[rows] = self._run([sequences[row] for row in rows])
        return vectors

    def _run(self, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
        batch = pad(sequences, self._pad_id)
        inputs = {
            "ids": batch.ids,
            "mask": batch.mask,
            "field_ids": batch.field_ids,
            "weights": batch.weights,
        }
        vectors: NDArray[np.float32] = self._session.run(["vector"], inputs)[0]
        return vectors
