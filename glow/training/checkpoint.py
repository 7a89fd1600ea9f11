"""Checkpoints: trained towers with everything that preprocessing needs, as a verified folder."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from glow.artifact import Manifest, verify, write_artifact
from glow.errors import FormatError, GlowError
from glow.nn import TowerConfig, TwoTowers
from glow.text import TOKENIZER_FILE, VOCABULARY_FILE, Preprocessor, TokenizerPieces, load_preprocessor

__all__ = ["Checkpoint", "known_report", "load_checkpoint", "save_checkpoint", "save_preprocessing"]

TOWERS_FILE = "towers.json"
WEIGHTS_FILE = "model.safetensors"
REPORT_FILE = "report.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, open: towers in evaluation mode, their preprocessor, training report and manifest."""

    towers: TwoTowers
    preprocessor: Preprocessor
    report: Mapping[str, Any]
    manifest: Manifest


def save_preprocessing(folder: Path, preprocessor: Preprocessor) -> None:
    """Writes vocabulary, schema, weighting and term table as `load_preprocessor` reads them."""
    vocabulary = preprocessor.pieces.vocabulary
    shutil.copyfile(vocabulary, folder / VOCABULARY_FILE)
    if isinstance(preprocessor.pieces, TokenizerPieces):
        shutil.copyfile(vocabulary.with_name(TOKENIZER_FILE), folder / TOKENIZER_FILE)
    preprocessor.schema.save(folder / "schema.json")
    preprocessor.weighting.save(folder / "weighting.json")
    preprocessor.terms.save(folder / "terms")


def save_checkpoint(
    folder: Path, towers: TwoTowers, preprocessor: Preprocessor, report: Mapping[str, Any]
) -> None:
    """Writes a checkpoint folder, replacing an older one of the same name."""
    with write_artifact(folder, "checkpoint", replace=True) as writer:
        # The word table belongs to both towers and is stored once.
        tensors = {
            name: tensor.contiguous()
            for name, tensor in towers.state_dict().items()
            if not name.endswith(".words.weight")
        }
        save_file(tensors, writer.folder / WEIGHTS_FILE)
        towers.config.save(writer.folder / TOWERS_FILE)
        save_preprocessing(writer.folder, preprocessor)
        (writer.folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        writer.hashes["terms"] = preprocessor.terms.hash


def known_report(load: Callable[[Path], Any], out: Path, fingerprint: str) -> dict[str, Any] | None:
    """The report of a whole checkpoint of the same run, None if there is none; `load` opens checkpoints of its kind."""
    try:
        report = dict(load(out).report)
    except GlowError:
        return None
    return report if report.get("fingerprint") == fingerprint else None


def load_checkpoint(folder: Path) -> Checkpoint:
    """Verifies and opens a checkpoint.

    Raises:
        ArtifactError: if it is missing or damaged.
        FormatError: if tensors do not fit the towers' shape.
    """
    manifest = verify(folder, "checkpoint")
    preprocessor = load_preprocessor(folder)
    towers = TwoTowers.unset(TowerConfig.load(folder / TOWERS_FILE), preprocessor.schema)
    tensors = load_file(folder / WEIGHTS_FILE)
    for side in ("query", "document"):
        tensors[f"{side}.words.weight"] = tensors["words.weight"]
    try:
        towers.load_state_dict(tensors)
    except RuntimeError as error:
        raise FormatError(f"{folder.name}/{WEIGHTS_FILE} does not fit {TOWERS_FILE}: {error}") from error
    report = json.loads((folder / REPORT_FILE).read_bytes())
    return Checkpoint(towers.eval(), preprocessor, report, manifest)
