"""Encoding: weighted tokens to L2-normalised vectors, by a tower in ONNX.

n is the number of sequences, D the dimensions of a vector.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.runtime.session import Device, open_session
from glow.text import WeightedTokens, batches_by_length, pad

__all__ = ["Encoder"]

DEFAULT_BATCH_TOKENS = 4096
INPUTS = {"ids", "mask", "field_ids", "weights"}
OUTPUT = "vector"


class Encoder:
    """One tower, open on one device.

    Args:
        path: `query.onnx` or `document.onnx`.
        pad_id: id of [PAD] in the model's vocabulary.
        device: `cpu` or `cuda`.
        threads: intra-op threads.
        batch_tokens: most tokens of a batch, padding counted.

    Attributes:
        batch_tokens: as given.
        dimensions: D.
        outputs: what the graph can be asked for; `vector` at least.

    Raises:
        DeviceError, FormatError: as `open_session`; FormatError also for a model that is no tower.
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
        self.batch_tokens = batch_tokens
        self.device = device
        self.dimensions = self._check(path.name)
        self.providers: list[str] = self._session.get_providers()
        self.outputs = tuple(value.name for value in self._session.get_outputs())

    def _check(self, name: str) -> int:
        """D of the tower, whose inputs and output must be the four and the one that `run` uses."""
        inputs = {value.name for value in self._session.get_inputs()}
        outputs = {value.name: value.shape for value in self._session.get_outputs()}
        dimensions = outputs.get(OUTPUT, [None])[-1]
        if inputs != INPUTS or not isinstance(dimensions, int):
            raise FormatError(
                f"{name} is no tower: found inputs {sorted(inputs)} and outputs {outputs}, "
                f"expected {sorted(INPUTS)} and {OUTPUT!r} of fixed width"
            )
        return dimensions

    def encode(self, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
        """Encodes sequences in batches of like length.

        Returns:
            float32 [n, D], L2-normalised, row i for sequence i; [0, D] for none.
        """
        vectors = np.empty((len(sequences), self.dimensions), np.float32)
        for rows in batches_by_length([len(sequence) for sequence in sequences], self.batch_tokens):
            vectors[rows] = self.run([sequences[row] for row in rows])
        return vectors

    def run(self, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
        """Encodes sequences as one padded batch, at least one; returns as `encode`."""
        vectors: NDArray[np.float32] = self.run_outputs(sequences, [OUTPUT])[0]
        return vectors

    def run_outputs(
        self, sequences: Sequence[WeightedTokens], outputs: Sequence[str]
    ) -> list[NDArray[np.float32]]:
        """Runs one padded batch of at least one sequence for the graph's outputs of these names, in their order."""
        batch = pad(sequences, self._pad_id)
        inputs = {
            "ids": batch.ids,
            "mask": batch.mask,
            "field_ids": batch.field_ids,
            "weights": batch.weights,
        }
        arrays: list[NDArray[np.float32]] = self._session.run(list(outputs), inputs)
        return arrays
