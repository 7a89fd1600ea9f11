"""Checkpoints: a verified directory of weights, the model's shape and a report; `checkpoint.json` has the kind."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glow.artifact import Manifest, verify, write_artifact
from glow.errors import ArtifactError, FormatError, GlowError

__all__ = [
    "CHECKPOINT_FILE", "REPORT_FILE", "WEIGHTS_FILE", "CheckpointKind", "Opened", "kind_of", "known_report", "load_weights",
    "open_checkpoint", "write_checkpoint",
]  # fmt: skip

CHECKPOINT_FILE, WEIGHTS_FILE, REPORT_FILE = "checkpoint.json", "model.safetensors", "report.json"
CheckpointKind = Literal["towers", "reranker", "impacts", "encoder"]
NAMES: Mapping[CheckpointKind, str] = {
    "towers": "towers",
    "reranker": "a re-ranker",
    "impacts": "learned impacts",
    "encoder": "a pre-trained encoder",
}


@dataclass(frozen=True, slots=True)
class Opened:
    """A verified checkpoint."""

    folder: Path
    shape: Mapping[str, Any]
    tensors: dict[str, Tensor]
    report: Mapping[str, Any]
    manifest: Manifest


def write_checkpoint(
    folder: Path,
    kind: CheckpointKind,
    shape: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    report: Mapping[str, Any],
    beside: Callable[[Path], None] = lambda folder: None,
    hashes: Mapping[str, str] | None = None,
) -> None:
    """Writes a checkpoint atomically; replaces an existing one.

    Args:
        folder: directory to create.
        kind: kind of the model.
        shape: parameters that construct the model.
        tensors: its weights, by name.
        report: the training report.
        beside: writes further files, such as those of preprocessing.
        hashes: hashes for the manifest.

    Raises:
        GlowError: if it cannot be written.
    """
    with write_artifact(folder, "checkpoint", replace=True) as writer:
        save_file(
            {name: value.detach().cpu().contiguous() for name, value in tensors.items()},
            writer.folder / WEIGHTS_FILE,
        )
        for name, value in ((CHECKPOINT_FILE, {"kind": kind, "shape": shape}), (REPORT_FILE, report)):
            (writer.folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        beside(writer.folder)
        writer.hashes.update(hashes or {})


def kind_of(folder: Path) -> CheckpointKind | None:
    """The kind of a checkpoint; None if the directory is not a checkpoint."""
    return found[0] if (found := _header(folder)) else None


def open_checkpoint(folder: Path, kind: CheckpointKind) -> Opened:
    """Verifies and opens a checkpoint.

    Raises:
        ArtifactError: if it is missing, damaged, or not a checkpoint.
        FormatError: if it holds another kind of model.
    """
    manifest = verify(folder, "checkpoint")
    try:
        header = _header(folder)
        if header is not None and header[0] == kind:
            report = json.loads((folder / REPORT_FILE).read_bytes())
            return Opened(folder, header[1], load_file(folder / WEIGHTS_FILE), report, manifest)
    except (OSError, ValueError) as error:
        raise FormatError(f"{folder.name} is not a checkpoint of {NAMES[kind]}: {error}") from error
    found = f"is a checkpoint of {NAMES[header[0]]}" if header else f"has no {CHECKPOINT_FILE}"
    raise FormatError(f"{folder.name} {found}, expected a checkpoint of {NAMES[kind]}")


def load_weights(model: nn.Module, opened: Opened) -> None:
    """Loads a checkpoint's weights into a model of its shape.

    Raises:
        FormatError: if they do not match it.
    """
    try:
        model.load_state_dict(opened.tensors)
    except RuntimeError as error:
        raise FormatError(f"{opened.folder.name}: the weights do not match the shape: {error}") from error


def known_report(out: Path, fingerprint: str) -> dict[str, Any] | None:
    """The report of a complete checkpoint of the same run; None if there is none."""
    try:
        verify(out, "checkpoint")
        report: dict[str, Any] = json.loads((out / REPORT_FILE).read_bytes())
    except (GlowError, OSError, ValueError):
        return None
    return report if report.get("fingerprint") == fingerprint else None


def _header(folder: Path) -> tuple[CheckpointKind, Mapping[str, Any]] | None:
    """Reads kind and shape.

    Raises:
        FormatError: if their file cannot be read.
    """
    if not (path := folder / CHECKPOINT_FILE).is_file():
        return None
    try:
        header = json.loads(path.read_bytes())
        if header["kind"] not in NAMES:
            raise ArtifactError(f"{folder.name} has the unknown kind {header['kind']!r}")
        return header["kind"], dict(header["shape"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FormatError(f"cannot read {folder.name}/{path.name}: {error}") from error
