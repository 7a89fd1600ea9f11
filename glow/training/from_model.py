"""Converts ONNX towers back to torch, for export in another precision, an attention output, or further training.

Quantized weights are dequantized, so the towers equal the model's except for the rounding of activations.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, TensorNames
from glow.errors import FormatError
from glow.nn import Tower, TowerConfig, TwoTowers
from glow.runtime import Model

__all__ = ["read_towers"]

Arrays = Mapping[str, NDArray[np.generic]]


def read_towers(model: Model) -> TwoTowers:
    """Reads both towers of a model artifact into torch, in evaluation mode.

    Args:
        model: an open model of `model_export` in any precision.

    Raises:
        FormatError: if a graph lacks a parameter of the towers.
    """
    towers = TwoTowers.unset(TowerConfig.load(model.folder / "towers.json"), model.preprocessor.schema)
    for tower, file in ((towers.query, QUERY_TOWER), (towers.document, DOCUMENT_TOWER)):
        _fill(tower, _arrays(model.folder / file), file)
    return towers.eval()


def _fill(tower: Tower, arrays: Arrays, file: str) -> None:
    with torch.no_grad():
        for name, parameter in tower.named_parameters():
            value = _parameter(name, arrays)
            if value is None or value.shape != tuple(parameter.shape):
                shown = "nothing" if value is None else f"shape {value.shape}"
                raise FormatError(f"{file}: expected {name} of shape {tuple(parameter.shape)}, found {shown}")
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value, np.float32)))


def _parameter(name: str, arrays: Arrays) -> NDArray[np.float32] | None:
    """Reads a parameter by name: plain, transposed, or dequantized."""
    matrix = name + TensorNames.TRANSPOSED
    rows = TensorNames.row_scales(name)
    if rows in arrays:
        return arrays[name].astype(np.float32) * arrays[rows].astype(np.float32)[:, None]
    if name in arrays:
        return arrays[name].astype(np.float32)
    if name + TensorNames.SCALED in arrays:
        scaled = arrays[name + TensorNames.SCALED].astype(np.float32)
        return scaled / np.float32(np.sqrt(len(scaled)))
    if matrix in arrays:
        return arrays[matrix].astype(np.float32).T
    if matrix + TensorNames.CODES in arrays:
        codes, scales = (
            arrays[matrix + TensorNames.CODES].astype(np.float32),
            arrays[matrix + TensorNames.MATRIX_SCALES],
        )
        return np.asarray(codes * scales.astype(np.float32), np.float32).T
    return None


def _arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    model: ModelProto = onnx.load(path)  # external data are beside the file, and were verified
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
