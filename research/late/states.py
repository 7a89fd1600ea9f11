"""Token states of both towers, kept as float16 on disk: what late interaction compares.

L   tokens of a text    t   tokens of all texts     H   hidden size
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
from glow.runtime import Encoder
from glow.text import WeightedTokens, batches_by_length, lexical_tokens
from glow_model_export.tokens import last_states

__all__ = ["StateStore", "TokenStates", "encode_states", "open_states", "unit", "with_states"]

STATES = "states"


def with_states(model: Path, folder: Path) -> Path:
    """Copies a model's towers, each with a second output `states`: float32 [B, L, H], of its last layer.

    Args:
        model: an exported model.
        folder: where the copy goes; one that is there is taken as it is.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in model.glob("*.bin"):
        if not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
    for name in (QUERY_TOWER, DOCUMENT_TOWER):
        graph = onnx.load(model / name, load_external_data=False)
        last, _ = last_states(graph)
        graph.graph.node.append(helper.make_node("Cast", [last], [STATES], STATES, to=TensorProto.FLOAT))
        shape = [each.dim_param for each in graph.graph.input[0].type.tensor_type.shape.dim]
        graph.graph.output.append(helper.make_tensor_value_info(STATES, TensorProto.FLOAT, [*shape, None]))
        onnx.save(graph, folder / name)
    return folder


@dataclass(frozen=True, slots=True, eq=False)
class TokenStates:
    """Tokens of one text.

    Attributes:
        states: float32 [L, H], L2-normalised.
        specials: bool [L], [CLS] and [SEP].
        lexical: bool [L], tokens of words that a lexical index holds.
    """

    states: NDArray[np.float32]
    specials: NDArray[np.bool_]
    lexical: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class StateStore:
    """States of many texts.

    Attributes:
        starts: int64 [n + 1].
        states: float16 [t, H], mapped.
        specials, lexical: bool [t].
        weights: float32 [t], BM25 or BM25F of the preprocessor.
        vectors: float32 [n, D], of the same run.
    """

    starts: NDArray[np.int64]
    states: NDArray[np.float16]
    specials: NDArray[np.bool_]
    lexical: NDArray[np.bool_]
    weights: NDArray[np.float32]
    vectors: NDArray[np.float32]

    def __getitem__(self, row: int) -> TokenStates:
        """The tokens of one text."""
        at = slice(int(self.starts[row]), int(self.starts[row + 1]))
        return TokenStates(unit(self.states[at].astype(np.float32)), self.specials[at], self.lexical[at])


def unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows divided by their lengths."""
    lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    normalised: NDArray[np.float32] = values / np.maximum(lengths, 1e-9)
    return normalised


def encode_states(encoder: Encoder, sequences: Sequence[WeightedTokens], folder: Path) -> None:
    """Encodes texts into a folder that `open_states` opens.

    Args:
        encoder: of a tower that `with_states` made.
        sequences: n of them, one at least.
        folder: made where it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lengths = [len(each) for each in sequences]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    vectors = np.empty((len(sequences), encoder.dimensions), np.float32)
    kept: NDArray[np.float16] | None = None
    for rows in batches_by_length(lengths, encoder.batch_tokens):
        found, states = encoder.run_outputs([sequences[row] for row in rows], ["vector", STATES])
        if kept is None:
            shape = (int(starts[-1]), states.shape[-1])
            kept = np.lib.format.open_memmap(folder / "states.npy", "w+", np.float16, shape)
        vectors[rows] = found
        for row, each in zip(rows, states, strict=True):
            kept[starts[row] : starts[row + 1]] = unit(each[: lengths[row]])
    np.savez(
        folder / "tokens.npz",
        starts=starts,
        specials=np.concatenate([each.word_ids < 0 for each in sequences]),
        lexical=np.concatenate([_lexical(each) for each in sequences]),
        weights=np.concatenate([each.weights for each in sequences]),
        vectors=vectors,
    )


def open_states(folder: Path) -> StateStore:
    """Opens what `encode_states` wrote."""
    with np.load(folder / "tokens.npz") as file:
        arrays = {name: file[name] for name in ("starts", "specials", "lexical", "weights", "vectors")}
    return StateStore(states=np.load(folder / "states.npy", mmap_mode="r"), **arrays)


def _lexical(sequence: WeightedTokens) -> NDArray[np.bool_]:
    flags = np.zeros(len(sequence), np.bool_)
    flags[lexical_tokens(sequence)] = True
    return flags
