"""Checkpoints of re-rankers: the cross-encoder with everything that its preprocessing needs, as a verified folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from glow.artifact import verify, write_artifact
from glow.errors import FormatError
from glow.nn import CrossConfig, CrossEncoder
from glow.text import Preprocessor, load_preprocessor
from glow.training.checkpoint import REPORT_FILE, WEIGHTS_FILE, save_preprocessing

__all__ = ["CROSS_FILE", "TrainedReranker", "load_reranker", "save_reranker"]

CROSS_FILE = "cross.json"
"""The model's shape; a checkpoint of towers has `towers.json` in its place."""


@dataclass(frozen=True, slots=True)
class TrainedReranker:
    """A re-ranker, open: model in evaluation mode, its preprocessor and training report."""

    model: CrossEncoder
    preprocessor: Preprocessor
    report: Mapping[str, Any]


def save_reranker(
    out: Path, model: CrossEncoder, preprocessor: Preprocessor, report: Mapping[str, Any]
) -> None:
    """Writes a checkpoint whole or not at all; one that is there is replaced.

    Raises:
        GlowError: if it cannot be written.
    """
    with write_artifact(out, "checkpoint", replace=True) as writer:
        tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(tensors, writer.folder / WEIGHTS_FILE)
        model.config.save(writer.folder / CROSS_FILE)
        save_preprocessing(writer.folder, preprocessor)
        (writer.folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        writer.hashes["terms"] = preprocessor.terms.hash


def load_reranker(folder: Path) -> TrainedReranker:
    """Opens a checkpoint after checking every file.

    Raises:
        ArtifactError: if it is missing, damaged, or not a checkpoint.
        FormatError: if it holds towers, or weights of another shape.
    """
    verify(folder, "checkpoint")
    if not (folder / CROSS_FILE).is_file():
        raise FormatError(
            f"{folder.name} is a checkpoint of towers, expected one of a re-ranker ({CROSS_FILE})"
        )
    model = CrossEncoder(CrossConfig.load(folder / CROSS_FILE))
    try:
        model.load_state_dict(load_file(folder / WEIGHTS_FILE))
    except RuntimeError as error:
        raise FormatError(f"{folder.name}: weights do not fit {CROSS_FILE}: {error}") from error
    report = json.loads((folder / REPORT_FILE).read_bytes())
    return TrainedReranker(model.eval(), load_preprocessor(folder), report)
