"""Checkpoints of re-rankers: the cross-encoder and everything that its preprocessing needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow.nn import CrossConfig, CrossEncoder
from glow.text import Preprocessor, load_preprocessor
from glow.training.checkpoint import save_preprocessing
from glow.training.run import load_weights, open_checkpoint, write_checkpoint

__all__ = ["TrainedReranker", "load_reranker", "save_reranker"]


@dataclass(frozen=True, slots=True)
class TrainedReranker:
    """An open re-ranker: model in evaluation mode, its preprocessor and training report."""

    model: CrossEncoder
    preprocessor: Preprocessor
    report: Mapping[str, Any]


def save_reranker(
    out: Path, model: CrossEncoder, preprocessor: Preprocessor, report: Mapping[str, Any]
) -> None:
    """Writes a checkpoint atomically; replaces an existing one.

    Raises:
        GlowError: if it cannot be written.
    """
    write_checkpoint(
        out,
        "reranker",
        model.config.model_dump(mode="json"),
        model.state_dict(),
        report,
        lambda folder: save_preprocessing(folder, preprocessor),
        {"terms": preprocessor.terms.hash},
    )


def load_reranker(folder: Path) -> TrainedReranker:
    """Verifies and opens a checkpoint.

    Raises:
        ArtifactError: if it is missing, damaged, or not a checkpoint.
        FormatError: if it holds another kind of model, or weights of another shape.
    """
    opened = open_checkpoint(folder, "reranker")
    model = CrossEncoder(CrossConfig.model_validate(opened.shape))
    load_weights(model, opened)
    return TrainedReranker(model.eval(), load_preprocessor(folder), opened.report)
