"""Checkpoints of heads of learned impacts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow.errors import FormatError
from glow.nn import TermImpacts
from glow.training.run import load_weights, open_checkpoint, write_checkpoint

__all__ = ["TrainedImpacts", "load_impacts", "save_impacts"]


@dataclass(frozen=True, slots=True)
class TrainedImpacts:
    """An open head in evaluation mode.

    Attributes:
        head: the head.
        model: hash of the model that it was trained for.
        priors: word -> its fraction of all words in the training queries.
        report: the training report.
    """

    head: TermImpacts
    model: str
    priors: Mapping[str, float]
    report: Mapping[str, Any]


def save_impacts(out: Path, trained: TrainedImpacts) -> None:
    """Writes a checkpoint atomically; replaces an existing one.

    Raises:
        GlowError: if it cannot be written.
    """
    word = trained.head.word
    shape = {"hidden": word.in_features, "dimensions": word.out_features, "model": trained.model}
    shape["priors"] = dict(trained.priors)
    write_checkpoint(out, "impacts", shape, trained.head.state_dict(), trained.report)


def load_impacts(folder: Path) -> TrainedImpacts:
    """Verifies and opens a checkpoint.

    Raises:
        ArtifactError: if it is missing, damaged, or not a checkpoint.
        FormatError: if it holds another kind of model, or weights of another shape.
    """
    opened = open_checkpoint(folder, "impacts")
    try:
        head = TermImpacts(int(opened.shape["hidden"]), int(opened.shape["dimensions"]))
        model, priors = opened.shape["model"], opened.shape["priors"]
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{folder.name} is not a checkpoint of learned impacts: {error}") from error
    load_weights(head, opened)
    return TrainedImpacts(head.eval(), model, priors, opened.report)
