"""Encodes weighted tokens as L2-normalized vectors, with a tower in ONNX.

n   sequences       D   dimensions of a vector
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# ONNX Runtime reads this at its import: without it, data about the use would leave the machine.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

from glow.errors import DeviceError, FormatError
from glow.text import WeightedTokens, batches_by_length, pad

Device = Literal["cpu", "cuda"]
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_SLOWER = {"cpu": ["SkipLayerNormFusion"]}  # a norm takes a quarter of the time of its fusion with a sum
_ONLY_ON_CPUS = b"MatMulIntegerToFloat"  # ONNX Runtime would compute it on the CPU, in silence


def open_session(path: Path, device: Device = "cpu", threads: int = 1) -> onnxruntime.InferenceSession:
    """Opens an ONNX file on one device; one intra-op thread suits a service whose requests run side by side."""
    provider, slower = _PROVIDERS[device], _SLOWER.get(device)
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise DeviceError(
            f"device {device!r} needs {provider}; this onnxruntime offers {', '.join(available)}. "
            "Install the GPU packages (docs/install.md, GPU), or use --device cpu"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False  # it keeps the memory of the largest batch, and gains nothing
    if device == "cuda":
        if _ONLY_ON_CPUS in path.read_bytes():
            raise DeviceError(f"{path.name} is int8, which only CPUs compute; export fp16 (docs/models.md)")
        onnxruntime.preload_dlls()  # of the packages of NVIDIA, which are not on the system's path of libraries
    try:
        session = onnxruntime.InferenceSession(path, options, [provider], disabled_optimizers=slower)
    except Exception as error:  # onnxruntime's own exception types are not public
        kind = DeviceError if device == "cuda" else FormatError
        raise kind(f"cannot open {path.name} on {device}: {error}") from error
    if session.get_providers()[0] != provider:
        raise DeviceError(f"asked for {provider}, ONNX Runtime chose {session.get_providers()[0]}")
    return session


DEFAULT_BATCH_TOKENS = 4096
INPUTS = {"ids", "mask", "field_ids", "weights"}
VECTOR = "vector"


class Encoder:
    """One tower, open on one device."""

    def __init__(
        self,
        path: Path,  # `query.onnx` or `document.onnx`
        pad_id: int = 0,  # id of [PAD] in the model's vocabulary
        device: Device = "cpu",
        threads: int = 1,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,  # most tokens of a batch, including padding
    ) -> None:
        self._session = open_session(path, device, threads)
        self._pad_id = pad_id
        self.batch_tokens = batch_tokens
        self.device = device
        self.dimensions = self._check(path.name)
        self.providers: list[str] = self._session.get_providers()
        self.outputs = tuple(value.name for value in self._session.get_outputs())  # at least `vector`

    def _check(self, name: str) -> int:
        """The tower's dimensions, D; refuses a graph without the inputs and outputs that `run` uses."""
        inputs = {value.name for value in self._session.get_inputs()}
        outputs = {value.name: value.shape for value in self._session.get_outputs()}
        dimensions = outputs.get(VECTOR, [None])[-1]
        if inputs != INPUTS or not isinstance(dimensions, int):
            raise FormatError(
                f"{name} is not a tower: found inputs {sorted(inputs)} and outputs {outputs}, "
                f"expected {sorted(INPUTS)} and {VECTOR!r} of fixed width"
            )
        return dimensions

    def encode(self, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
        """Encodes sequences in batches of similar length.

        Returns float32 [n, D], L2-normalized, row i for sequence i; [0, D] if there are none.
        """
        vectors = np.empty((len(sequences), self.dimensions), np.float32)
        for rows in batches_by_length([len(sequence) for sequence in sequences], self.batch_tokens):
            vectors[rows] = self.run([sequences[row] for row in rows])
        return vectors

    def run(self, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
        """Encodes sequences as one padded batch, at least one; returns as `encode`."""
        vectors: NDArray[np.float32] = self.run_outputs(sequences, [VECTOR])[0]
        return vectors

    def run_outputs(
        self, sequences: Sequence[WeightedTokens], outputs: Sequence[str]
    ) -> list[NDArray[np.float32]]:
        """Runs one padded batch of at least one sequence for the graph's outputs of these names, in their order."""
        batch = pad(sequences, self._pad_id)
        inputs = {name: getattr(batch, name) for name in INPUTS}
        arrays: list[NDArray[np.float32]] = self._session.run(list(outputs), inputs)
        return arrays
