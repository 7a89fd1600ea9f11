"""Packages towers as a model artifact: graphs, quantization, parity."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, TOWER_WEIGHTS, file_records, model_hash, write_artifact
from glow.nn import TwoTowers
from glow.records import Document
from glow.text import Preprocessor
from glow.training import REPORT_FILE, save_preprocessing
from glow_model_export.explain import write_explain
from glow_model_export.graph import export_graph
from glow_model_export.parity import check_parity, check_tokens, parity_texts
from glow_model_export.quantize import Quantization, quantize_matrices
from glow_model_export.tokens import TOKEN_SIZE, Texts, fit_projection, write_tokens
from glow_model_export.word_table import move_weights, share_word_table

__all__ = ["Source", "export_model"]


@dataclass(frozen=True, slots=True)
class Source:
    """The input of an export: towers, their preprocessing and their provenance.

    Attributes:
        projection: projection of the towers' token embeddings, float32 [H, P], if they have one already.
    """

    towers: TwoTowers
    preprocessor: Preprocessor
    report: Mapping[str, Any]
    parent: Mapping[str, Any]
    projection: NDArray[np.float32] | None = None


def export_model(
    source: Source,
    out: Path,
    how: Quantization,
    queries: Sequence[str] = (),
    documents: Sequence[Document] = (),
    quality: Mapping[str, Any] | None = None,
    *,
    token_size: int | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Writes a model artifact, or nothing if a parity check fails.

    Args:
        source: the trained towers.
        out: directory to create.
        how: precision of the towers.
        queries, documents: texts for parity check and projection; default: words of the term statistics.
        quality: retrieval figures to store with the model.
        token_size: numbers per token for late interaction, a multiple of 8; 0: none; None: as in the source's
            projection, otherwise `TOKEN_SIZE`. Smaller towers get the largest size that they support.
        replace: whether an existing model may be replaced.

    Returns:
        Precision, parity of both towers, tokens and quality, as in the model's `report.json`.

    Raises:
        ExportError: if an exported tower differs from the trained one.
        BuildError: if `out` exists.
    """
    texts = parity_texts(source.preprocessor, queries, documents)
    with write_artifact(out, "model", replace=replace) as writer, tempfile.TemporaryDirectory() as scratch:
        traced = {name: export_graph(tower) for name, tower in _named(source.towers).items()}
        _write_towers(traced, Path(scratch), "none")
        _write_towers(traced, writer.folder, how)
        pad_id = source.preprocessor.pieces.pad_id
        parity = {
            name: check_parity(
                tower, Path(scratch) / name, writer.folder / name, texts[name], pad_id
            ).as_json()
            for name, tower in _named(source.towers).items()
        }
        tokens = _write_tokens(source, Path(scratch), writer.folder, texts, token_size)
        write_explain(writer.folder, texts, pad_id)
        report = {"precision": how, "parity": parity, "tokens": tokens, "quality": dict(quality or {})}
        text = json.dumps({**report, "training": source.report}, indent=2)
        (writer.folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
        source.towers.config.save(writer.folder / "towers.json")
        save_preprocessing(writer.folder, source.preprocessor)
        writer.parents["source"] = dict(source.parent)
        writer.parameters["precision"] = how
        writer.counts["dimensions"] = source.towers.config.hidden
        if tokens:
            writer.counts["token_size"] = tokens["size"]
        writer.hashes["terms"] = source.preprocessor.terms.hash
        writer.hashes["model"] = model_hash(file_records(writer.folder))
    return report


def _write_towers(traced: Mapping[str, ModelProto], folder: Path, how: Quantization) -> None:
    graphs = {name: quantize_matrices(_copy(graph), how) for name, graph in traced.items()}
    share_word_table(graphs, folder, int8=how == "int8")
    for name, graph in graphs.items():
        move_weights(folder / TOWER_WEIGHTS[name], graph)
        onnx.save(graph, folder / name)


def _write_tokens(
    source: Source, plain: Path, shipped: Path, texts: Texts, size: int | None
) -> dict[str, Any]:
    """Gives the towers token outputs; returns their size and parity, or nothing without tokens."""
    if size == 0:
        return {}
    pad_id = source.preprocessor.pieces.pad_id
    found: dict[str, Any] = {}
    projection = source.projection if size is None else None
    if projection is None:
        projection, found["kept"] = fit_projection(shipped, texts, size or TOKEN_SIZE, pad_id)
    for folder in (plain, shipped):
        write_tokens(folder, projection, texts, pad_id)
    parity = {
        name: check_tokens(tower, projection, plain / name, shipped / name, texts[name], pad_id)
        for name, tower in _named(source.towers).items()
    }
    return {"size": projection.shape[1], **found, "parity": parity}


def _copy(graph: ModelProto) -> ModelProto:
    copied = ModelProto()
    copied.CopyFrom(graph)
    return copied


def _named(towers: TwoTowers) -> dict[str, Any]:
    return {QUERY_TOWER: towers.query, DOCUMENT_TOWER: towers.document}
