"""A re-ranker's ONNX graphs give what the model gives, with and without late interaction, in float and 8 bits."""

import json
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from glow.errors import ExportError
from glow.nn import CrossConfig, CrossEncoder
from glow_model_export.quantize import Quantization, quantize_matrices
from glow_model_export.rerank_graphs import RERANK_GRAPHS, export_rerank_graphs

CONFIG = CrossConfig(
    vocabulary=60, hidden=64, layers=3, heads=4, intermediate=128, query_tokens=9, document_tokens=20, fields=2, split=2,
    late=16, compressed=16,
)  # fmt: skip


def model(**changes: object) -> CrossEncoder:
    torch.manual_seed(5)
    made = CrossEncoder(CrossConfig.model_validate(CONFIG.model_dump() | changes)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


@cache
def traced(config: str) -> dict[str, bytes]:
    """The graphs of `model` in some shape; tracing takes seconds."""
    graphs = export_rerank_graphs(model(**json.loads(config)))
    return {name: graph.SerializeToString() for name, graph in graphs.items()}


class Graphs:
    """Sessions of a re-ranker's graphs."""

    def __init__(self, made: CrossEncoder, how: Quantization) -> None:
        self._sessions = {}
        for name, content in traced(made.config.model_dump_json()).items():
            graph = quantize_matrices(onnx.ModelProto.FromString(content), how)
            self._sessions[name] = onnxruntime.InferenceSession(graph.SerializeToString())

    def run(self, name: str, **inputs: np.ndarray) -> np.ndarray:
        return self._sessions[name].run(None, inputs)[0]

    def scores(self, query: np.ndarray, documents: list[np.ndarray], fields: list[np.ndarray]) -> np.ndarray:
        """Scores of one query with each document, read apart and stored one by one."""
        asked = {"ids": query[None], "mask": np.ones((1, len(query)), np.int64)}
        states = self.run(RERANK_GRAPHS[0], **asked)
        rows = [
            self.run(
                RERANK_GRAPHS[1], ids=ids[None], mask=np.ones((1, len(ids)), np.int64), field_ids=own[None]
            )[0]
            for ids, own in zip(documents, fields, strict=True)
        ]
        longest = max(map(len, rows))
        stored = np.stack([np.pad(row, ((0, longest - len(row)), (0, 0))) for row in rows])
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], np.int64)
        pairs = {"query": states, "query_mask": asked["mask"], "stored": stored, "mask": mask}
        return self.run(RERANK_GRAPHS[2], **pairs)


def texts() -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(2)
    documents = [random.integers(1, 60, length) for length in (20, 2, 11)]
    return random.integers(1, 60, 6), documents, [random.integers(0, 2, len(ids)) for ids in documents]


def expected(made: CrossEncoder) -> np.ndarray:
    query, documents, fields = texts()
    asked = torch.from_numpy(query)[None]
    longest = max(map(len, documents))
    padded = [
        torch.from_numpy(np.stack([np.pad(one, (0, longest - len(one))) for one in part]))
        for part in (documents, fields)
    ]
    mask = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in documents])
    with torch.no_grad():
        ours = made.read_query(asked, torch.ones_like(asked), torch.ones(asked.shape))
        theirs = made.read_document(padded[0], mask, padded[1], torch.ones(mask.shape))
        scores: np.ndarray = made.score(ours, theirs).numpy()
        return scores


@pytest.mark.parametrize(("split", "late"), [(1, 0), (2, 16)])
def test_scores_from_stored_documents_are_the_models(split: int, late: int) -> None:
    made = model(split=split, late=late)
    wanted = expected(made)
    assert wanted.std() > 1e-3
    np.testing.assert_allclose(Graphs(made, "none").scores(*texts()), wanted, atol=1e-4)


def test_in_8_bits_scores_keep_their_order_and_nearly_their_values() -> None:
    made = model()
    ours, theirs = Graphs(made, "int8").scores(*texts()), expected(made)
    assert np.abs(ours - theirs).max() < 0.1 * np.abs(theirs).max()
    assert np.argsort(ours).tolist() == np.argsort(theirs).tolist()


def test_in_8_bits_a_score_does_not_depend_on_batch_mates() -> None:
    graphs, (query, documents, fields) = Graphs(model(), "int8"), texts()
    together = graphs.scores(query, documents, fields)
    alone = [graphs.scores(query, [ids], [own]) for ids, own in zip(documents, fields, strict=True)]
    np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-4)


@pytest.mark.parametrize(
    "changes", [{"split": 0, "compressed": 0}, {"compressed": 0}, {"weight_form": "log"}]
)
def test_what_cannot_be_stored_or_reads_weights_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ExportError, match="only a re-ranker that stores documents"):
        export_rerank_graphs(model(**changes))
