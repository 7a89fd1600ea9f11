"""Checkpoints: a verified directory of weights, the model's shape and a report; `checkpoint.json` has the kind.

Towers of a model (ONNX) are read back into torch as well. Quantized weights are dequantized, so these towers equal the
model's except for the rounding of activations.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, Manifest, TensorNames, verify, write_artifact
from glow.errors import ArtifactError, FormatError, GlowError
from glow.index import REPORT_FILE
from glow.nn import (
    Pretrainer,
    SentenceConfig,
    TermImpacts,
    Tower,
    TowerConfig,
    TwoTowers,
    bert_tensors,
    init_encoder,
)
from glow.runtime import Model
from glow.text import Preprocessor, WordPieces, load_preprocessor, save_preprocessor

CHECKPOINT_FILE, WEIGHTS_FILE = "checkpoint.json", "model.safetensors"
CheckpointKind = Literal["towers", "reranker", "impacts", "encoder"]


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
    """Writes a checkpoint atomically; replaces an existing one."""
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
    """Verifies and opens a checkpoint."""
    manifest = verify(folder, "checkpoint")
    try:
        header = _header(folder)
        if header is not None and header[0] == kind:
            report = json.loads((folder / REPORT_FILE).read_bytes())
            return Opened(folder, header[1], load_file(folder / WEIGHTS_FILE), report, manifest)
    except (OSError, ValueError) as error:
        raise FormatError(f"{folder.name} is not a checkpoint of {kind}: {error}") from error
    found = f"is a checkpoint of {header[0]}" if header else f"has no {CHECKPOINT_FILE}"
    raise FormatError(f"{folder.name} {found}, expected a checkpoint of {kind}")


def load_weights(model: nn.Module, opened: Opened) -> None:
    """Loads a checkpoint's weights into a model of its shape."""
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
    """Reads kind and shape."""
    if not (path := folder / CHECKPOINT_FILE).is_file():
        return None
    try:
        header = json.loads(path.read_bytes())
        if header["kind"] not in get_args(CheckpointKind):
            raise ArtifactError(f"{folder.name} has the unknown kind {header['kind']!r}")
        return header["kind"], dict(header["shape"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FormatError(f"cannot read {folder.name}/{path.name}: {error}") from error


TEACHER_MAP = "teacher-map.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An open checkpoint: towers in evaluation mode, their preprocessor, training report and manifest."""

    towers: TwoTowers
    preprocessor: Preprocessor
    report: Mapping[str, Any]
    manifest: Manifest


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
        save_preprocessor(made, preprocessor)
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
    """Verifies and opens a checkpoint."""
    opened = open_checkpoint(folder, "towers")
    preprocessor = load_preprocessor(folder)
    towers = TwoTowers.unset(TowerConfig.model_validate(opened.shape), preprocessor.schema)
    for side in ("query", "document"):
        opened.tensors[f"{side}.words.weight"] = opened.tensors["words.weight"]
    load_weights(towers, opened)
    return Checkpoint(towers.eval(), preprocessor, opened.report, opened.manifest)


Arrays = Mapping[str, NDArray[np.generic]]


def read_towers(model: Model) -> TwoTowers:
    """Reads both towers of a model artifact into torch, in evaluation mode."""
    towers = TwoTowers.unset(TowerConfig.load(model.folder / "towers.json"), model.preprocessor.schema)
    for tower, file in ((towers.query, QUERY_TOWER), (towers.document, DOCUMENT_TOWER)):
        graph = onnx.load(model.folder / file).graph  # external data are beside the file, and were verified
        _fill(tower, {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}, file)
    return towers.eval()


def _fill(tower: Tower, arrays: Arrays, file: str) -> None:
    with torch.no_grad():
        for name, parameter in tower.named_parameters():
            value = _parameter(name, arrays)
            if value is None or value.shape != tuple(parameter.shape):
                shown = "nothing" if value is None else f"shape {value.shape}"
                raise FormatError(f"{file}: expected {name} of shape {tuple(parameter.shape)}, found {shown}")
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value, np.float32)))


def _parameter(name: str, arrays: Arrays) -> NDArray[np.float32] | None:
    """Reads a parameter by name: plain, transposed, or dequantized."""
    matrix = name + TensorNames.TRANSPOSED
    rows = TensorNames.row_scales(name)
    if rows in arrays:
        return arrays[name].astype(np.float32) * arrays[rows].astype(np.float32)[:, None]
    if name in arrays:
        return arrays[name].astype(np.float32)
    if matrix in arrays:
        return arrays[matrix].astype(np.float32).T
    if matrix + TensorNames.CODES in arrays:
        codes, scales = (
            arrays[matrix + TensorNames.CODES].astype(np.float32),
            arrays[matrix + TensorNames.MATRIX_SCALES],
        )
        return np.asarray(codes * scales.astype(np.float32), np.float32).T
    return None


@dataclass(frozen=True, slots=True)
class TrainedImpacts:
    """An open head in evaluation mode."""

    head: TermImpacts
    model: str  # hash of the model that it was trained for
    priors: Mapping[str, float]  # word -> its fraction of all words in the training queries
    report: Mapping[str, Any]


def save_impacts(out: Path, trained: TrainedImpacts) -> None:
    """Writes a checkpoint atomically; replaces an existing one."""
    word = trained.head.word
    shape = {"hidden": word.in_features, "dimensions": word.out_features, "model": trained.model}
    shape["priors"] = dict(trained.priors)
    write_checkpoint(out, "impacts", shape, trained.head.state_dict(), trained.report)


def load_impacts(folder: Path) -> TrainedImpacts:
    """Verifies and opens a checkpoint."""
    opened = open_checkpoint(folder, "impacts")
    try:
        head = TermImpacts(int(opened.shape["hidden"]), int(opened.shape["dimensions"]))
        model, priors = opened.shape["model"], opened.shape["priors"]
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{folder.name} is not a checkpoint of learned impacts: {error}") from error
    load_weights(head, opened)
    return TrainedImpacts(head.eval(), model, priors, opened.report)


SPECIALS = ("specials.weight", "specials.positions")
_OWN_ENCODER = ("crossed.encoder.", "alone.", "head.words.")


@dataclass(frozen=True, slots=True)
class Pretrained:
    """An open pre-trained model in evaluation mode, with its vocabulary and training report."""

    model: Pretrainer
    pieces: WordPieces
    report: Mapping[str, Any]


def save_pretrained(out: Path, model: Pretrainer, pieces: WordPieces, report: Mapping[str, Any]) -> None:
    """Writes a checkpoint atomically; replaces an existing one."""
    shape = {"kind": model.kind, "encoder": model.config.model_dump(mode="json")}

    def beside(folder: Path) -> None:
        shutil.copyfile(pieces.vocabulary, folder / "vocab.txt")
        (folder / "config.json").write_text(
            json.dumps(_bert_config(model.config), indent=2) + "\n", encoding="utf-8"
        )

    own = {name: value for name, value in model.state_dict().items() if not name.startswith(_OWN_ENCODER)}
    encoder = model.encoder
    specials = (encoder.specials.weight, encoder.positions.weight[: model.config.specials])
    # the encoder's tensors under BERT's names, the others under their own
    tensors = {**bert_tensors(encoder, pieces.cls_id), **own, **dict(zip(SPECIALS, specials, strict=True))}
    write_checkpoint(out, "encoder", shape, tensors, report, beside)


def load_pretrained(folder: Path) -> Pretrained:
    """Verifies and opens a checkpoint."""
    opened = open_checkpoint(folder, "encoder")
    try:
        config = SentenceConfig.model_validate(opened.shape["encoder"])
        model = Pretrainer(opened.shape["kind"], config)
        init_encoder(model.encoder, folder, range(config.layers))
        model.encoder.specials.weight.data.copy_(opened.tensors[SPECIALS[0]])
        model.encoder.positions.weight.data[: config.specials].copy_(opened.tensors[SPECIALS[1]])
        own = {
            name: value
            for name, value in opened.tensors.items()
            if not name.startswith(("embeddings.", "encoder.", "specials."))
        }
        model.load_state_dict(own, strict=False)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise FormatError(f"{folder.name} is not a checkpoint of pre-training: {error}") from error
    return Pretrained(model.eval(), WordPieces(folder / "vocab.txt"), opened.report)


def _bert_config(config: SentenceConfig) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "hidden_act": "gelu",
        "vocab_size": config.vocabulary,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate,
        "max_position_embeddings": config.positions - config.specials + 1,
        "type_vocab_size": 2,
        "layer_norm_eps": config.layer_norm_eps,
    }
