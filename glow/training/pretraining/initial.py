"""Initial weights of an encoder, and their transfer to and from a tower."""

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
from glow.training.checkpoint import load_checkpoint
from glow.training.from_model import read_towers
from glow.training.pretraining.config import PretrainConfig
from glow.training.run import kind_of

__all__ = ["initial_pretrainer", "return_to_tower", "start_from_tower"]

SPECIAL_NOISE = 0.02
"""Standard deviation of the special tokens' initial embeddings around that of [CLS]."""


def initial_pretrainer(config: PretrainConfig, init: Path, cls_id: int) -> Pretrainer:
    """The initial model of a run; the run's seed decides random weights.

    Args:
        config: the run's configuration.
        init: a BERT directory, such as a pre-trained checkpoint; or a checkpoint of towers or a model (document tower).
        cls_id: id of [CLS].

    Raises:
        ConfigError: if it lacks requested layers, or its positions do not hold a sequence.
    """
    torch.manual_seed(config.seed)
    shape, tower = _found(init)
    wanted, text = config.encoder, config.pretraining
    is_taken = wanted.init == "layers"
    rows = _rows(init, tower) if is_taken else wanted.positions
    hidden = wanted.hidden or shape.hidden
    sentence = SentenceConfig(
        vocabulary=shape.vocabulary,
        hidden=hidden,
        heads=wanted.heads or shape.heads,
        intermediate=shape.intermediate if is_taken else 4 * hidden,
        layers=len(wanted.init_layers),
        specials=text.specials,
        positions=rows + text.specials - 1,
        dropout=wanted.dropout,
        layer_norm_eps=shape.layer_norm_eps,
    )
    if sentence.most_offset(text.length) < 1:
        raise ConfigError(
            f"{text.length} tokens after {text.specials} special ones exceed {rows + text.specials - 1} positions; lower length"
        )
    model = Pretrainer(text.kind, sentence, text.bag)
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
        if tower.distances is not None:
            raise ConfigError(
                f"the towers of {init.name} have relative positions (MPNet), which pre-training does not support"
            )
        if layers != tuple(range(len(tower.layers))):
            raise ConfigError(
                f"init_layers {list(layers)} are asked for, the document tower of {init.name} has {len(tower.layers)}, and "
                "they can only be taken as they are"
            )
        start_from_tower(encoder, tower)


def start_from_tower(encoder: SentenceEncoder, tower: Tower) -> None:
    """Fills an encoder from a tower of its shape, except token embeddings; every token gets the last field's embedding."""
    with torch.no_grad():
        encoder.set_positions(tower.positions.weight)
        encoder.segment.copy_(tower.fields.weight[-1])
    encoder.embedding_norm.load_state_dict(tower.embedding_norm.state_dict())
    encoder.layers.load_state_dict(_shared(tower, encoder))


def return_to_tower(encoder: SentenceEncoder, tower: Tower) -> None:
    """Copies the layers of an encoder back to the tower that it started from; the tower's gains and fields stay."""
    tower.embedding_norm.load_state_dict(encoder.embedding_norm.state_dict())
    tower.layers.load_state_dict(encoder.layers.state_dict(), strict=False)


def _shared(tower: Tower, encoder: SentenceEncoder) -> dict[str, Tensor]:
    names = encoder.layers.state_dict()
    return {name: value for name, value in tower.layers.state_dict().items() if name in names}


def _found(init: Path) -> tuple[TowerConfig, Tower | None]:
    """Shape and document tower of a model or checkpoint; for a BERT directory, only its shape."""
    if (init / QUERY_TOWER).is_file():
        towers = read_towers(Model.open(init))
    elif kind_of(init) == "towers":
        towers = load_checkpoint(init).towers
    else:
        return bert_config(init), None
    return towers.config.document, towers.document


def _rows(init: Path, tower: Tower | None) -> int:
    if tower is not None:
        return tower.positions.num_embeddings
    return len(load_weights(init)["embeddings.position_embeddings.weight"])
