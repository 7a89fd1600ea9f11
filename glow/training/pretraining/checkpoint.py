"""Checkpoints of pre-training: a BERT directory for `glow train --init` and other tools, plus files of GLOW."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from glow.errors import FormatError
from glow.nn import Pretrainer, SentenceConfig, bert_tensors, init_encoder
from glow.text import WordPieces
from glow.training.run import WEIGHTS_FILE, open_checkpoint, write_checkpoint

__all__ = ["Pretrained", "load_pretrained", "save_pretrained"]

SPECIALS = ("specials.weight", "specials.positions")
_OWN_ENCODER = ("crossed.encoder.", "alone.", "head.words.")


@dataclass(frozen=True, slots=True)
class Pretrained:
    """An open pre-trained model in evaluation mode, with its vocabulary and training report."""

    model: Pretrainer
    pieces: WordPieces
    report: Mapping[str, Any]


def save_pretrained(out: Path, model: Pretrainer, pieces: WordPieces, report: Mapping[str, Any]) -> None:
    """Writes a checkpoint atomically; replaces an existing one.

    Raises:
        GlowError: if it cannot be written.
    """
    shape = {"kind": model.kind, "encoder": model.config.model_dump(mode="json")}

    def beside(folder: Path) -> None:
        shutil.copyfile(pieces.vocabulary, folder / "vocab.txt")
        (folder / "config.json").write_text(
            json.dumps(_bert_config(model.config), indent=2) + "\n", encoding="utf-8"
        )

    write_checkpoint(out, "encoder", shape, _tensors(model, pieces.cls_id), report, beside)


def load_pretrained(folder: Path) -> Pretrained:
    """Verifies and opens a checkpoint.

    Raises:
        ArtifactError: if it is missing, damaged, or not a checkpoint.
        FormatError: if it holds another kind of model, or weights of another shape.
    """
    opened = open_checkpoint(folder, "encoder")
    try:
        config = SentenceConfig.model_validate(opened.shape["encoder"])
        model = Pretrainer(opened.shape["kind"], config)
        init_encoder(model.encoder, folder, range(config.layers))
        _put_specials(model, opened.tensors)
        own = {
            name: value
            for name, value in opened.tensors.items()
            if not name.startswith(("embeddings.", "encoder.", "specials."))
        }
        missing = model.load_state_dict(own, strict=False).missing_keys
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise FormatError(f"{folder.name} is not a checkpoint of pre-training: {error}") from error
    if absent := [name for name in missing if not name.startswith(_OWN_ENCODER)]:
        raise FormatError(f"{folder.name}/{WEIGHTS_FILE} lacks {absent[0]} of a {model.kind} model")
    return Pretrained(model.eval(), WordPieces(folder / "vocab.txt"), opened.report)


def _put_specials(model: Pretrainer, tensors: Mapping[str, Tensor]) -> None:
    count = model.config.specials
    model.encoder.specials.weight.data.copy_(tensors[SPECIALS[0]])
    model.encoder.positions.weight.data[:count].copy_(tensors[SPECIALS[1]])


def _tensors(model: Pretrainer, cls_id: int) -> dict[str, Tensor]:
    """The encoder's tensors under BERT's names, the others under their own."""
    encoder = model.encoder
    own = {name: value for name, value in model.state_dict().items() if not name.startswith(_OWN_ENCODER)}
    specials = (encoder.specials.weight, encoder.positions.weight[: model.config.specials])
    return {**bert_tensors(encoder, cls_id), **own, **dict(zip(SPECIALS, specials, strict=True))}


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
