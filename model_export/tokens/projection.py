"""The projection of token vectors for late interaction, fitted to the token embeddings of both towers.

H   hidden size     P   numbers of a token
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
from glow.errors import ExportError
from glow.runtime import Encoder
from glow.text import WeightedTokens, batches_by_length
from glow_model_export.tokens.graph import TOKEN_UNIT, Texts, add_tokens

__all__ = ["TOKEN_SIZE", "TokenProjection", "fit_projection"]

TOKEN_SIZE = 128
"""Default P."""


class TokenProjection(NamedTuple):
    """The projection of both towers' token embeddings.

    Attributes:
        matrix: float32 [H, P].
        kept: fraction of the normalized embeddings' squared length that it keeps, in [0, 1].
    """

    matrix: NDArray[np.float32]
    kept: float


def fit_projection(folder: Path, texts: Texts, size: int, pad_id: int) -> TokenProjection:
    """Fits the directions of largest uncentered second moment of normalized token embeddings, with equally weighted towers.

    Args:
        folder: directory of both towers with their weights.
        texts: tower's file -> preprocessed texts, at least one each.
        size: P, a multiple of 8; smaller towers get the largest size that they support.
        pad_id: padding id of the vocabulary.

    Returns:
        Orthonormal columns, the longest direction first.

    Raises:
        ExportError: if a graph is not a known tower, or its embeddings are not finite or have fewer than 8 numbers.
    """
    moments = [
        _second_moment(folder / tower, texts[tower], pad_id) for tower in (QUERY_TOWER, DOCUMENT_TOWER)
    ]
    moment = np.mean(moments, axis=0)
    if not np.isfinite(moment).all():
        raise ExportError("the towers' last token embeddings are not finite; the model is broken")
    size = min(size, len(moment) // TOKEN_UNIT * TOKEN_UNIT)
    if size < TOKEN_UNIT:
        raise ExportError(
            f"tokens need a hidden size of {TOKEN_UNIT} at least, found {len(moment)}; export with --token-size 0"
        )
    lengths, directions = np.linalg.eigh(moment)
    columns = directions[:, ::-1][:, :size]
    # The sign of a direction is arbitrary: the number with the largest magnitude becomes positive.
    largest = np.take_along_axis(columns, np.abs(columns).argmax(0)[None], axis=0)
    kept = float(lengths[::-1][:size].sum() / lengths.sum())
    return TokenProjection(np.ascontiguousarray(columns * np.sign(largest), np.float32), kept)


def _second_moment(tower: Path, sequences: Sequence[WeightedTokens], pad_id: int) -> NDArray[np.float64]:
    """Mean outer product of normalized token embeddings, float64 [H, H]."""
    graph = onnx.load(tower, load_external_data=False)
    hidden = graph.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    whole = np.eye(hidden, -(-hidden // TOKEN_UNIT) * TOKEN_UNIT, dtype=np.float32)
    total, count = np.zeros((hidden, hidden)), 0
    with tempfile.NamedTemporaryFile(dir=tower.parent, prefix=".", suffix=".onnx") as file:
        file.write(add_tokens(graph, whole).SerializeToString())
        file.flush()
        encoder = Encoder(Path(file.name), pad_id)
        for rows in batches_by_length([len(each) for each in sequences], encoder.batch_tokens):
            _, tokens = encoder.run_tokens([sequences[row] for row in rows])
            for row, found in zip(rows, tokens, strict=True):
                states = found[: len(sequences[row]), :hidden].astype(np.float64)
                total += states.T @ states
                count += len(states)
    return total / count
