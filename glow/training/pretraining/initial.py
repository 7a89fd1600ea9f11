"""What an encoder starts from, and what a tower takes of one."""

from pathlib import Path

import torch
from torch import Tensor

from glow.artifact import QUERY_TOWER
from glow.errors import ConfigError
from glow.nn import (
    Pretrainer,
    SentenceConfig,
    SentenceEncoder,
    Tower,
    TowerConfig,
    bert_config,
    init_encoder,
    load_weights,
)
from glow.runtime import Model
from glow.training.checkpoint import TOWERS_FILE, load_checkpoint
from glow.training.from_model import read_towers
from glow.training.pretraining.config import PretrainConfig

__all__ = ["initial_pretrainer", "return_to_tower", "start_from_tower"]

SPECIAL_NOISE = 0.02
"""Deviation of the special tokens' embeddings beside [CLS], from which all of them start."""


def initial_pretrainer(config: PretrainConfig, init: Path, cls_id: int) -> Pretrainer:
    """The model that a run starts from; what is drawn at random follows the run's seed.

    Args:
        config: the run.
        init: a BERT-layout folder, such as a pre-trained checkpoint; or a checkpoint of towers, or a model, whose document tower is taken.
        cls_id: of [CLS].

    Raises:
        ConfigError: if it lacks layers that are asked for, or its positions do not hold a sequence.
    """
    torch.manual_seed(config.seed)
    tower = _tower(init)
    wanted, text = config.encoder, config.pretraining
    shape = bert_config(init) if tower is None else None
    rows = _rows(init, tower) if wanted.init == "layers" else wanted.positions
    hidden = wanted.hidden or (shape.hidden if shape else tower.words.embedding_dim)  # type: ignore[union-attr]
    heads = wanted.heads or (shape.heads if shape else tower.layers[0].attention.heads)  # type: ignore[union-attr]
    sentence = SentenceConfig(
        vocabulary=shape.vocabulary if shape else tower.words.num_embeddings,  # type: ignore[union-attr]
        hidden=hidden,
        heads=heads,
        intermediate=_inner(shape, tower) if wanted.init == "layers" else 4 * hidden,
        layers=len(wanted.init_layers),
        specials=text.specials,
        positions=rows + text.specials - 1,
        dropout=wanted.dropout,
    )
    if sentence.most_offset(text.length) < 1:
        raise ConfigError(
            f"{text.length} pieces after {text.specials} special tokens do not fit {rows + text.specials - 1} positions; lower length"
        )
    model = Pretrainer(text.kind, sentence)
    if wanted.init != "none":
        _fill(model.encoder, config, init, tower)
    with torch.no_grad():
        first = model.encoder.words.weight[cls_id]
        model.encoder.specials.weight.copy_(first + SPECIAL_NOISE * torch.randn(text.specials, hidden))
        model.encoder.specials.weight[0] = first
    model.encoder.words.weight.requires_grad_(wanted.train_words)
    return model


def _fill(encoder: SentenceEncoder, config: PretrainConfig, init: Path, tower: Tower | None) -> None:
    layers = config.encoder.init_layers if config.encoder.init == "layers" else ()
    if tower is None:
        init_encoder(encoder, init, layers)
        return
    with torch.no_grad():
        encoder.words.weight.copy_(tower.words.weight)
    if layers:
        if layers != tuple(range(len(tower.layers))):
            raise ConfigError(
                f"init_layers {list(layers)} are asked for, the document tower of {init.name} has {len(tower.layers)}, and "
                "they can only be taken as they are"
            )
        start_from_tower(encoder, tower)


def start_from_tower(encoder: SentenceEncoder, tower: Tower) -> None:
    """Fills an encoder from a tower of its shape, but for the word table; the last field's embedding becomes every piece's."""
    with torch.no_grad():
        encoder.set_positions(tower.positions.weight)
        encoder.segment.copy_(tower.fields.weight[-1])
    encoder.embedding_norm.load_state_dict(tower.embedding_norm.state_dict())
    encoder.layers.load_state_dict(_shared(tower, encoder))


def return_to_tower(encoder: SentenceEncoder, tower: Tower) -> None:
    """Gives a tower the layers of an encoder that started from it; what only the tower has (gains, fields) stays."""
    tower.embedding_norm.load_state_dict(encoder.embedding_norm.state_dict())
    tower.layers.load_state_dict(encoder.layers.state_dict(), strict=False)


def _shared(tower: Tower, encoder: SentenceEncoder) -> dict[str, Tensor]:
    names = encoder.layers.state_dict()
    return {name: value for name, value in tower.layers.state_dict().items() if name in names}


def _tower(init: Path) -> Tower | None:
    """The document tower of a model or checkpoint; None of a BERT-layout folder."""
    if (init / QUERY_TOWER).is_file():
        return read_towers(Model.open(init)).document
    return load_checkpoint(init).towers.document if (init / TOWERS_FILE).is_file() else None


def _inner(shape: TowerConfig | None, tower: Tower | None) -> int:
    if shape is not None:
        return shape.intermediate
    return tower.layers[0].inner.out_features  # type: ignore[union-attr, return-value]


def _rows(init: Path, tower: Tower | None) -> int:
    if tower is not None:
        return tower.positions.num_embeddings
    return len(load_weights(init)["embeddings.position_embeddings.weight"])
