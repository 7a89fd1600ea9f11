"""The towers that a run starts from."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from glow.artifact import QUERY_TOWER
from glow.errors import MismatchError
from glow.nn import TwoTowers, bert_config, init_from_bert, init_words
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.training.checkpoint import load_checkpoint
from glow.training.config import TrainConfig
from glow.training.from_model import read_towers
from glow.training.run import kind_of

__all__ = ["fill_towers", "initial_towers", "with_few_layers"]

_LAYER = re.compile(r"^(query|document)\.layers\.(\d+)\.(.*)$")


def initial_towers(config: TrainConfig, schema: FieldSchema, init: Path) -> TwoTowers:
    """The initial towers of a run; the run's seed decides random layers."""
    torch.manual_seed(config.seed)
    wanted = config.towers
    if (init / QUERY_TOWER).is_file():
        found = read_towers(Model.open(init))
        if not found.schema.joined or found.schema == schema:
            return _go_on(found, config, schema)
        depth, document_depth = wanted.depths
        changes = {"layers": depth, "document_layers": document_depth, **wanted.changes, **wanted.shape}
        towers = TwoTowers(found.config.model_copy(update={"pooling_gain": None, **changes}), schema)
        fill_towers(towers, found, wanted.init_layers, wanted.document_layers)
        return towers
    if kind_of(init) == "towers":
        return _go_on(load_checkpoint(init).towers, config, schema)
    depth, document_depth = wanted.depths
    shape = bert_config(init, layers=depth, document_layers=document_depth, **wanted.changes, **wanted.shape)
    towers = TwoTowers(shape, schema)
    if wanted.init == "words":
        init_words(towers, init)
    elif wanted.init == "layers":
        init_from_bert(towers, init, wanted.init_layers, wanted.document_layers)
    return towers


def _go_on(found: TwoTowers, config: TrainConfig, schema: FieldSchema) -> TwoTowers:
    """Loads trained towers with the run's weight side, pooling and dropout.

    Raises:
        MismatchError: if they have other fields or another depth.
    """
    depths = (found.config.layers, found.config.document.layers)
    if found.schema != schema or depths != config.towers.depths:
        raise MismatchError(
            "the initial towers have {} and {} layers (queries, documents) and schema {}, "
            "the configuration requires {}, {} and {}".format(
                *depths, found.schema.name, *config.towers.depths, schema.name
            )
        )
    towers = TwoTowers(found.config.model_copy(update=config.towers.changes), schema)
    towers.load_state_dict(found.state_dict(), strict=False)
    return towers


def with_few_layers(whole: TwoTowers, layers: Sequence[int]) -> TwoTowers:
    """Towers that use all layers of an imported encoder for documents, and some for queries."""
    depth = whole.config.layers
    shape = whole.config.model_copy(update={"layers": len(layers), "document_layers": depth})
    towers = TwoTowers(shape, whole.schema)
    fill_towers(towers, whole, layers, range(depth))
    return towers


def fill_towers(
    towers: TwoTowers, found: TwoTowers, layers: Sequence[int], document_layers: Sequence[int] = ()
) -> None:
    """Fills towers from an imported encoder. It has a single field embedding, from which all fields start.

    Args:
        towers: towers to fill in place.
        found: the imported towers.
        layers: its layers that become layers 0, 1, …
        document_layers: the same for the document tower, if they differ.

    Raises:
        MismatchError: if its layers, width or longest input are too small.
    """
    source, filled = found.state_dict(), {}
    chosen = {"query": list(layers), "document": list(document_layers or layers)}
    for name, wanted in towers.state_dict().items():
        part = _LAYER.match(name)
        place = name
        if part is not None:
            place = f"{part[1]}.layers.{chosen[part[1]][int(part[2])]}.{part[3]}"
        tensor = source.get(place)
        if tensor is None:
            continue  # a gain, or a merge of weights, which it lacks
        if name.endswith("positions.weight"):
            tensor = tensor[: len(wanted)]
        elif name.endswith("distances.weight"):
            spare = (len(tensor) - len(wanted)) // 2
            tensor = tensor[spare : spare + len(wanted)]
        elif name.endswith("fields.weight"):
            tensor = tensor[:1].expand(len(wanted), -1)
        if tensor.shape != wanted.shape:
            raise MismatchError(
                f"{name} of the imported encoder has shape {tuple(tensor.shape)}, the run needs {tuple(wanted.shape)}"
            )
        filled[name] = tensor
    missing = [
        name
        for name in towers.state_dict()
        if ".layers." in name and name.endswith("qkv.weight") and name not in filled
    ]
    if missing:
        raise MismatchError(
            f"the imported encoder has {found.config.layers} layers; init_layers requires layer {missing[0]}"
        )
    with torch.no_grad():
        towers.load_state_dict(filled, strict=False)
