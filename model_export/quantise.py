"""Smaller towers: 8-bit matrices whose scales never depend on batch mates, or half precision.

Plain dynamic quantisation takes one activation scale for a whole batch, so a query's vector depends on who shares
its batch. MatMulNBits quantises weights in blocks and activations row by row: invariant by construction.
docs/results/quantisation.md has the comparison.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from onnx import ModelProto

__all__ = ["Quantisation", "quantise_matrices"]

Quantisation = Literal["none", "int8", "fp16"]
BITS = 8
BLOCK = 32
INT8_ACCUMULATION = 4


def quantise_matrices(model: ModelProto, how: Quantisation) -> ModelProto:
    """Quantises the weight matrices of a tower.

    Args:
        model: float32 tower; its word table is treated apart (`word_table`).
        how: `none`, `int8` (8-bit blocks of 32, int8 accumulation), or `fp16` (inputs and output stay float32).

    Returns:
        The quantised model; the input may be changed.
    """
    if how == "int8":
        return _blockwise(model)
    if how == "fp16":
        return _half(model)
    return model


def _blockwise(model: ModelProto, accuracy_level: int = INT8_ACCUMULATION) -> ModelProto:
    with _own_logging():
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantiser = MatMulNBitsQuantizer(
            model, block_size=BLOCK, is_symmetric=True, bits=BITS, accuracy_level=accuracy_level
        )
        quantiser.process()
    quantised: ModelProto = quantiser.model.model
    return quantised


def _half(model: ModelProto) -> ModelProto:
    with _own_logging():
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half: ModelProto = convert_float_to_float16(model, keep_io_types=True)
    return half


@contextmanager
def _own_logging() -> Iterator[None]:
    """Undoes what these tools do to the process's logging when they are imported, and mutes their notes."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        root.handlers[:] = handlers
        root.setLevel(level)
