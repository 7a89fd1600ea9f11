"""Checkpoints of heads of learned impacts, as verified folders."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from glow.artifact import verify, write_artifact
from glow.errors import FormatError
from glow.nn import TermImpacts
from glow.training.checkpoint import REPORT_FILE, WEIGHTS_FILE

__all__ = ["IMPACTS_FILE", "TrainedImpacts", "load_impacts", "save_impacts"]

IMPACTS_FILE = "impacts.json"
"""What a head needs beside its weights; checkpoints of towers and re-rankers have other files in its place."""


@dataclass(frozen=True, slots=True)
class TrainedImpacts:
    """A head, open, in evaluation mode.

    Attributes:
        head: the head.
        model: hash of the model whose towers it was trained over.
        priors: word -> its share among all words of the training queries.
        report: of the training.
    """

    head: TermImpacts
    model: str
    priors: Mapping[str, float]
    report: Mapping[str, Any]


def save_impacts(out: Path, trained: TrainedImpacts) -> None:
    """Writes a checkpoint whole or not at all; one that is there is replaced.

    Raises:
        GlowError: if it cannot be written.
    """
    with write_artifact(out, "checkpoint", replace=True) as writer:
        tensors = {name: value.detach().contiguous() for name, value in trained.head.state_dict().items()}
        save_file(tensors, writer.folder / WEIGHTS_FILE)
        shape = {"hidden": trained.head.word.in_features, "dimensions": trained.head.word.out_features}
        values = {**shape, "model": trained.model, "priors": dict(trained.priors)}
        (writer.folder / IMPACTS_FILE).write_text(json.dumps(values) + "\n", encoding="utf-8")
        report = json.dumps(trained.report, indent=2)
        (writer.folder / REPORT_FILE).write_text(report + "\n", encoding="utf-8")


def load_impacts(folder: Path) -> TrainedImpacts:
    """Opens a checkpoint after checking every file.

    Raises:
        ArtifactError: if it is missing, damaged, or not a checkpoint.
        FormatError: if it holds something else, or weights of another shape.
    """
    verify(folder, "checkpoint")
    try:
        values = json.loads((folder / IMPACTS_FILE).read_bytes())
        head = TermImpacts(int(values["hidden"]), int(values["dimensions"]))
        head.load_state_dict(load_file(folder / WEIGHTS_FILE))
        report = json.loads((folder / REPORT_FILE).read_bytes())
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise FormatError(f"{folder.name} is no checkpoint of learned impacts: {error}") from error
    return TrainedImpacts(head.eval(), values["model"], values["priors"], report)
