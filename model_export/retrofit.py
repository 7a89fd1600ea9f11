"""Derives a model with the same weights and vectors, plus token vectors for late interaction. Needs no torch."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import CALIBRATION_FILE, EXPLAIN_TOWERS, file_records, model_hash, verify, write_artifact
from glow.records import Document
from glow.text import load_preprocessor
from glow_model_export.explain import write_explain
from glow_model_export.parity import parity_texts
from glow_model_export.tokens import TOKEN_SIZE, fit_projection, write_tokens

__all__ = ["SAME_VECTORS", "model_with_tokens"]

SAME_VECTORS = "same_vectors"
"""Key among a manifest's parents: name and hash of the model whose weights this one has."""

_REPORT = "report.json"


def model_with_tokens(
    folder: Path,
    out: Path,
    queries: Sequence[str] = (),
    documents: Sequence[Document] = (),
    *,
    token_size: int = TOKEN_SIZE,
    projection: NDArray[np.float32] | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Makes a model with token vectors from an existing one; replaces those that it has.

    Args:
        folder: the model, which stays unchanged.
        out: directory to create.
        queries, documents: texts to fit the projection to; default: words of the term statistics.
        token_size: P, a multiple of 8; smaller towers get the largest size that they support.
        projection: float32 [H, P], instead of a fitted one.
        replace: whether an existing model may be replaced.

    Returns:
        Names and hashes of both models, P, and the fraction of the embeddings that the projection keeps.

    Raises:
        ArtifactError: if it is missing, damaged, or not a model.
        ExportError: if a graph is not a known tower, or would give different vectors.
        BuildError: if `out` exists.
    """
    manifest = verify(folder, "model")
    preprocessor = load_preprocessor(folder)
    texts, pad_id = parity_texts(preprocessor, queries, documents), preprocessor.pieces.pad_id
    before = model_hash(manifest.files)
    with write_artifact(out, "model", replace=replace) as writer:
        for name in manifest.files:
            if name == CALIBRATION_FILE:  # graphs of its former tokens
                continue
            (writer.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, writer.folder / name)
        found: dict[str, Any] = {}
        if projection is None:
            projection, found["kept"] = fit_projection(writer.folder, texts, token_size, pad_id)
        write_tokens(writer.folder, projection, texts, pad_id)
        if any(name in manifest.files for name in EXPLAIN_TOWERS.values()):
            write_explain(writer.folder, texts, pad_id)
        tokens = {"size": projection.shape[1], **found}
        _add_to_report(writer.folder / _REPORT, tokens)
        writer.parents = {**manifest.parents, SAME_VECTORS: {"model": manifest.name, "hash": before}}
        writer.parameters = dict(manifest.parameters)
        writer.counts = {**manifest.counts, "token_size": projection.shape[1]}
        after = model_hash(file_records(writer.folder))
        writer.hashes = {**manifest.hashes, "model": after}
    return {
        "model": out.name,
        "hash": after,
        "made_of": {"model": manifest.name, "hash": before},
        "tokens": tokens,
    }


def _add_to_report(path: Path, tokens: dict[str, Any]) -> None:
    report = json.loads(path.read_bytes()) if path.is_file() else {}
    path.write_text(json.dumps({**report, "tokens": tokens}, indent=2) + "\n", encoding="utf-8")
