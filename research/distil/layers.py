"""Compares the encoder layers that a query tower starts from, by runs of equal length over the same texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glow.commands import say
from glow.runtime import Model
from glow.training import Place, QueryTexts, query_recipe, read_towers, run, vectors, with_few_layers

__all__ = ["try_layers"]

HELD_OUT = 2_000


def try_layers(
    model: Model, texts: Sequence[str], choices: Sequence[Sequence[int]], epochs: int, out: Path, seed: int
) -> list[dict[str, Any]]:
    """Trains a query tower from each choice of layers.

    Args:
        model: the full imported encoder.
        texts: the first 2,000 are held out.
        choices: layers of each run.
        epochs: epochs of each run.
        out: directory for the encoder's vectors and the runs.
        seed: seed of every run.

    Returns:
        Layers and held-out cosine of each run.
    """
    whole, preprocessor = read_towers(model), model.preprocessor
    made = QueryTexts.make(out / "teacher", whole.query, preprocessor, texts[HELD_OUT:], texts[:HELD_OUT])
    found = []
    for layers in choices:
        torch.manual_seed(seed)
        towers = with_few_layers(whole, layers)
        towers.words.weight.requires_grad_(False)
        recipe = query_recipe(towers, preprocessor, made, seed, epochs=epochs)
        name = "-".join(str(layer) for layer in layers)
        report = run(recipe, Place(out / name, None, "cpu"))
        held = [preprocessor.query(text) for text in made.held]
        learned = vectors(towers.query, held, preprocessor.pieces.pad_id, "fp32")
        cosine = float(np.einsum("ij,ij->i", learned, made.held_aims[:]).mean())
        found.append({"layers": list(layers), "steps": report["steps"], "held_out_cosine": round(cosine, 4)})
        say(f"{name}: {found[-1]}")
    return found
