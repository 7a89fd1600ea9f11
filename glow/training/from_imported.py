"""Towers of a run from those of an imported encoder, which read a document as one text: any of its layers, for any fields."""

import re
from collections.abc import Sequence

import torch

from glow.errors import MismatchError
from glow.nn import TwoTowers

__all__ = ["fill_from_imported"]

_LAYER = re.compile(r"^(query|document)\.layers\.(\d+)\.(.*)$")


def fill_from_imported(
    towers: TwoTowers, found: TwoTowers, layers: Sequence[int], document_layers: Sequence[int] = ()
) -> None:
    """Fills towers as `init_from_bert` does from a folder; every field starts as the one that the encoder knows.

    Args:
        towers: to be filled in place.
        found: the imported towers.
        layers: which of its layers become layers 0, 1, …
        document_layers: those of the document tower, where they are others.

    Raises:
        MismatchError: if its layers, width or longest input are too few.
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
            continue  # a gain, or a merge of weights, which it had no use for
        if name.endswith("positions.weight"):
            tensor = tensor[: len(wanted)]
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
            f"the imported encoder has {found.config.layers} layers; {missing[0]} was asked for by init_layers"
        )
    with torch.no_grad():
        towers.load_state_dict(filled, strict=False)
