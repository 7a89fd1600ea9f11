"""Packages a trained re-ranker as an artifact: graphs, weights, preprocessing and a parity check of its scores.

`int8` quantizes layers 1 to l, which cost time in every build and query. The joined layers stay in float, because
8 bits gain nothing there (docs/results/models.md).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto

from glow.artifact import (
    DOCUMENT_READER,
    DOCUMENT_TOWER,
    QUERY_READER,
    QUERY_TOWER,
    RERANK_WEIGHT_FILE,
    RERANKER_SHAPE,
    RERANKER_WEIGHTS,
    file_records,
    folder_for,
    reranker_hash,
    write_artifact,
)
from glow.errors import ExportError
from glow.index import REPORT_FILE, RerankWeight
from glow.nn import CrossEncoder
from glow.records import Document
from glow.runtime import Reranker, RerankerShape
from glow.text import Preprocessor, WeightedTokens, load_preprocessor, pad, save_preprocessor
from glow_model_export.parity import parity_texts
from glow_model_export.quantize import Quantization, move_weights, quantize_matrices, share_word_table
from glow_model_export.rerank_graphs import export_rerank_graphs

MAX_DIFFERENCE = 1e-3
MIN_CORRELATION = 0.98
_QUERIES, _DOCUMENTS = 32, 16


@dataclass(frozen=True, slots=True)
class RerankSource:
    """The input of an export: the re-ranker, its preprocessing and its provenance."""

    model: CrossEncoder
    preprocessor: Preprocessor
    report: Mapping[str, Any]
    parent: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RerankParity:
    """The differences between scores before and after export."""

    pairs: int
    max_difference: float  # largest absolute one between float ONNX and torch
    correlation: float  # between shipped scores and float ONNX


def export_reranker(
    source: RerankSource,
    out: Path,
    how: Quantization,
    queries: Sequence[str] = (),
    documents: Sequence[Document] = (),
    rerank_weight: RerankWeight | None = None,
    *,
    replace: bool = False,
) -> dict[str, Any]:
    """Writes a re-ranker artifact, or nothing if the parity check fails; returns precision and parity, as in `report.json`.

    Queries and documents are texts for the check; default: words of the term statistics.
    """
    texts = parity_texts(source.preprocessor, queries, documents)
    pairs = (
        texts[QUERY_TOWER][:_QUERIES],
        [tokens.without_first() for tokens in texts[DOCUMENT_TOWER][:_DOCUMENTS]],
    )
    graphs = export_rerank_graphs(source.model)
    with (
        write_artifact(out, "reranker", replace=replace) as writer,
        folder_for(out.parent / f".{out.name}-float") as scratch,
    ):
        _write(scratch, graphs, "none", source)
        _write(writer.folder, graphs, how, source)
        trained = _torch_scores(source.model, *pairs, source.preprocessor.pieces.pad_id)
        plain = _scores(scratch, source.preprocessor, *pairs)
        shipped = _scores(writer.folder, source.preprocessor, *pairs)
        parity = _parity(trained, plain, shipped)
        (rerank_weight or RerankWeight()).save(writer.folder / RERANK_WEIGHT_FILE)
        report = {"precision": how, "parity": asdict(parity)}
        text = json.dumps({**report, "training": source.report}, indent=2)
        (writer.folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
        writer.parents["source"] = dict(source.parent)
        writer.parameters["precision"] = how
        writer.hashes["reranker"] = reranker_hash(file_records(writer.folder))
    return report


def _write(folder: Path, graphs: Mapping[str, ModelProto], how: Quantization, source: RerankSource) -> None:
    copies = {name: ModelProto.FromString(graph.SerializeToString()) for name, graph in graphs.items()}
    for name in (QUERY_READER, DOCUMENT_READER):
        copies[name] = quantize_matrices(copies[name], how)
    readers = {name: copies[name] for name in (QUERY_READER, DOCUMENT_READER)}
    share_word_table(readers, folder, int8=how == "int8")
    move_weights(folder / RERANKER_WEIGHTS, *copies.values())
    for name, graph in copies.items():
        onnx.save(graph, folder / name)
    config = source.model.config
    shape = RerankerShape(
        layers=config.layers,
        split=config.split,
        size=config.compressed,
        query_tokens=config.query_tokens,
        document_tokens=config.document_tokens,
    )
    shape.save(folder / RERANKER_SHAPE)
    save_preprocessor(folder, source.preprocessor)


def _torch_scores(
    model: CrossEncoder, queries: Sequence[WeightedTokens], documents: Sequence[WeightedTokens], pad_id: int
) -> NDArray[np.float32]:
    """Scores of the trained model, float32 [queries, documents]."""
    rows = []
    shown = [torch.from_numpy(part) for part in _arrays(documents, pad_id)]
    with torch.inference_mode():
        theirs = model.read_document(*shown)
        for tokens in queries:
            ids, mask, _, weights = (torch.from_numpy(part) for part in _arrays([tokens], pad_id))
            ours = model.read_query(ids, mask, weights)
            rows.append(model.score(ours, theirs).numpy())
    return np.stack(rows)


def _scores(
    folder: Path,
    preprocessor: Preprocessor,
    queries: Sequence[WeightedTokens],
    documents: Sequence[WeightedTokens],
) -> NDArray[np.float32]:
    """As `_torch_scores`, by the graphs in a directory."""
    reranker = Reranker(folder, load_preprocessor(folder, preprocessor.terms, preprocessor.pieces))
    stored, mask = reranker.documents().read_tokens(documents)
    return np.stack([reranker.score(reranker.read(tokens), stored, mask) for tokens in queries])


def _arrays(sequences: Sequence[WeightedTokens], pad_id: int) -> tuple[NDArray[Any], ...]:
    batch = pad(sequences, pad_id)
    return batch.ids, batch.mask, batch.field_ids, batch.weights


def _parity(
    trained: NDArray[np.float32], plain: NDArray[np.float32], shipped: NDArray[np.float32]
) -> RerankParity:
    for side, scores in (("torch", trained), ("float ONNX", plain), ("the shipped ONNX", shipped)):
        if not np.isfinite(scores).all():
            raise ExportError(
                f"scores from {side} hold NaN or infinity; train it again, or choose another precision"
            )
    parity = RerankParity(
        pairs=plain.size,
        max_difference=float(np.abs(plain - trained).max()),
        correlation=float(np.corrcoef(shipped.ravel(), plain.ravel())[0, 1]),
    )
    if parity.max_difference > MAX_DIFFERENCE or not parity.correlation >= MIN_CORRELATION:
        raise ExportError(
            f"the exported re-ranker differs from the trained one: max difference {parity.max_difference:.2e} (at most "
            f"{MAX_DIFFERENCE:.0e}), correlation of scores {parity.correlation:.4f} (at least {MIN_CORRELATION}); give texts "
            "like those it was trained on (--parity-data, --split), or another precision (--quantize)"
        )
    return parity
