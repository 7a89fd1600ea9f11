"""Checkpoints of towers, including everything that preprocessing needs."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from glow.artifact import Manifest
from glow.nn import TowerConfig, TwoTowers
from glow.text import TOKENIZER_FILE, VOCABULARY_FILE, Preprocessor, TokenizerPieces, load_preprocessor
from glow.training.run import load_weights, open_checkpoint, write_checkpoint

__all__ = ["TEACHER_MAP", "Checkpoint", "load_checkpoint", "save_checkpoint", "save_preprocessing"]

TEACHER_MAP = "teacher-map.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An open checkpoint: towers in evaluation mode, their preprocessor, training report and manifest."""

    towers: TwoTowers
    preprocessor: Preprocessor
    report: Mapping[str, Any]
    manifest: Manifest


def save_preprocessing(folder: Path, preprocessor: Preprocessor) -> None:
    """Writes vocabulary, schema, weighting and term statistics for `load_preprocessor`."""
    vocabulary = preprocessor.pieces.vocabulary
    shutil.copyfile(vocabulary, folder / VOCABULARY_FILE)
    if isinstance(preprocessor.pieces, TokenizerPieces):
        shutil.copyfile(vocabulary.with_name(TOKENIZER_FILE), folder / TOKENIZER_FILE)
    preprocessor.schema.save(folder / "schema.json")
    preprocessor.weighting.save(folder / "weighting.json")
    preprocessor.terms.save(folder / "terms")


def save_checkpoint(
    folder: Path,
    towers: TwoTowers,
    preprocessor: Preprocessor,
    report: Mapping[str, Any],
    teacher_map: nn.Linear | None = None,
) -> None:
    """Writes a checkpoint directory; replaces an older one of the same name.

    A learned map of a teacher's vectors is stored in `teacher-map.safetensors`, for a later training of the other tower.
    """

    def beside(made: Path) -> None:
        save_preprocessing(made, preprocessor)
        if teacher_map is not None:
            save_file({"weight": teacher_map.weight.detach().cpu().contiguous()}, made / TEACHER_MAP)

    # Both towers share the token embedding matrix, which is stored once.
    tensors = {name: each for name, each in towers.state_dict().items() if not name.endswith(".words.weight")}
    write_checkpoint(
        folder,
        "towers",
        towers.config.model_dump(mode="json"),
        tensors,
        report,
        beside,
        {"terms": preprocessor.terms.hash},
    )


def load_checkpoint(folder: Path) -> Checkpoint:
    """Verifies and opens a checkpoint.

    Raises:
        ArtifactError: if it is missing or damaged.
        FormatError: if it holds another kind of model, or tensors do not match the towers' shape.
    """
    opened = open_checkpoint(folder, "towers")
    preprocessor = load_preprocessor(folder)
    towers = TwoTowers.unset(TowerConfig.model_validate(opened.shape), preprocessor.schema)
    for side in ("query", "document"):
        opened.tensors[f"{side}.words.weight"] = opened.tensors["words.weight"]
    load_weights(towers, opened)
    return Checkpoint(towers.eval(), preprocessor, opened.report, opened.manifest)
