"""Which layers of an encoder a query tower starts from: runs of equal length over the same texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glow.commands import say
from glow.nn import TwoTowers
from glow.runtime import Model
from glow.training import Place, QueryTexts, fill_towers, query_recipe, read_towers, run

__all__ = ["try_layers"]

HELD_OUT = 2_000


def try_layers(
    model: Model, texts: Sequence[str], choices: Sequence[Sequence[int]], hours: float, out: Path, seed: int
) -> list[dict[str, Any]]:
    """Trains a query tower from each choice of layers.

    Args:
        model: the whole encoder, imported.
        texts: the first 2,000 are held out.
        choices: layers of each run.
        hours: of each run.
        out: folder for the encoder's vectors and the runs.
        seed: of every run.

    Returns:
        Layers and held-out cosine of each run.
    """
    whole, preprocessor = read_towers(model), model.preprocessor
    made = QueryTexts.make(out / "teacher", whole.query, preprocessor, texts[HELD_OUT:], texts[:HELD_OUT])
    found = []
    for layers in choices:
        torch.manual_seed(seed)
        depth = whole.config.layers
        shape = whole.config.model_copy(update={"layers": len(layers), "document_layers": depth})
        towers = TwoTowers(shape, whole.schema)
        fill_towers(towers, whole, layers, range(depth))
        towers.words.weight.requires_grad_(False)
        recipe = query_recipe(towers, preprocessor, made, seed, hours)
        name = "-".join(str(layer) for layer in layers)
        report = run(recipe, Place(out / name, None, "cpu"), lambda progress: None)
        found.append({"layers": list(layers), **report})
        say(f"{name}: {found[-1]}")
    return found
