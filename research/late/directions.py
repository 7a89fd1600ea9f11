"""Computes the projection of token embeddings in `tokens.bin` (models/README.md).

L   tokens of a text    H   hidden size
"""

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
from glow.evaluation import Corpus, find_tasks
from glow.runtime import Encoder, Model
from glow.text import WeightedTokens, batches_by_length
from glow_model_export.tokens import last_states
from research.late.collections import SEED

__all__ = ["directions_of", "fit_directions"]

TRAINED = ("tldr", "medquad")
TRAIN_QUERIES, TRAIN_DOCUMENTS = 2000, 1000
BATCH_TOKENS = 512
STATES = "states"
Floats = NDArray[np.float32]


def fit_directions(data: Path, model: Model, work: Path) -> Floats:
    """Directions of training queries and relevant documents of tldr and medquad; float32 [H, H], best first.

    Args:
        data: directory of both datasets.
        model: the model whose token embeddings are used.
        work: directory for copies of the towers that output them.
    """
    generator = random.Random(SEED)  # noqa: S311
    preprocessor = model.preprocessor
    queries: list[WeightedTokens] = []
    documents: list[WeightedTokens] = []
    for name in TRAINED:
        task = find_tasks(data / name, ["train"])[0]
        drawn = generator.sample(list(task.queries), TRAIN_QUERIES)
        queries += [preprocessor.query(each.text) for each in drawn]
        relevant = {each.document_id for each in task.qrels if each.grade > 0}
        found = [each for each in Corpus(data / name, preprocessor.schema.names) if each.id in relevant]
        documents += [preprocessor.document(each) for each in generator.sample(found, TRAIN_DOCUMENTS)]
    towers = _with_states(model.folder, work)
    encoders = (
        Encoder(towers / name, preprocessor.pieces.pad_id, batch_tokens=BATCH_TOKENS)
        for name in (DOCUMENT_TOWER, QUERY_TOWER)
    )
    return directions_of([list(_states(*each)) for each in zip(encoders, (documents, queries), strict=True)])


def directions_of(sides: Sequence[Sequence[Floats]]) -> Floats:
    """Singular directions of normalized, uncentered token embeddings, float32 [L, H] each; towers weigh the same."""
    sums = [np.mean([each.T @ each / len(each) for each in side], axis=0) for side in sides]
    _, directions = np.linalg.eigh(sum(sums))
    return np.ascontiguousarray(directions[:, ::-1].astype(np.float32))


def _with_states(model: Path, folder: Path) -> Path:
    """Copies a model's towers with a second output `states`, float32 [B, L, H], of the last layer."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in model.glob("*.bin"):
        shutil.copyfile(path, folder / path.name)
    for name in (QUERY_TOWER, DOCUMENT_TOWER):
        graph = onnx.load(model / name, load_external_data=False)
        last, _ = last_states(graph)
        graph.graph.node.append(helper.make_node("Cast", [last], [STATES], STATES, to=TensorProto.FLOAT))
        shape = [each.dim_param for each in graph.graph.input[0].type.tensor_type.shape.dim]
        graph.graph.output.append(helper.make_tensor_value_info(STATES, TensorProto.FLOAT, [*shape, None]))
        onnx.save(graph, folder / name)
    return folder


def _states(encoder: Encoder, sequences: Sequence[WeightedTokens]) -> Iterator[Floats]:
    """Normalized token embeddings of each text, stored in 16 bits meanwhile."""
    lengths = [len(each) for each in sequences]
    found: dict[int, NDArray[np.float16]] = {}
    for rows in batches_by_length(lengths, encoder.batch_tokens):
        (states,) = encoder.run_outputs([sequences[row] for row in rows], [STATES])
        for row, each in zip(rows, states, strict=True):
            found[row] = _unit(each[: lengths[row]]).astype(np.float16)
    for row in range(len(sequences)):
        yield _unit(found[row].astype(np.float32))


def _unit(values: Floats) -> Floats:
    normalised: Floats = values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), 1e-9)
    return normalised
