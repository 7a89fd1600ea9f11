"""The training of `glow adapt`: configurations for the model's tower shapes, and pre-training of the document tower."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from glow.errors import ConfigError
from glow.nn import PretrainingKind, TowerConfig
from glow.runtime import Model
from glow.training import (
    Given,
    PretrainConfig,
    Progress,
    TrainConfig,
    TrainingDevice,
    load_pretrained,
    read_towers,
    return_to_tower,
    save_checkpoint,
    train,
)

__all__ = ["adapt_config", "pretrained_start"]

Say = Callable[[str], None]
Tell = Callable[[Progress], None]
RECIPE = Path(__file__).with_name("adapt.toml")
HELD_OUT = 0.1
"""Fraction of the documents whose queries judge the adapted model."""
SEQUENCES, LENGTH, BATCH_TOKENS, RATE = 32, 64, 4096, 5e-5


def adapt_config(model: Model, max_steps: int, seed: int) -> TrainConfig:
    """The configuration in adapt.toml, for towers of the model's shape.

    Raises:
        ConfigError: if the model's queries have no layers.
    """
    schema, shape = model.preprocessor.schema, TowerConfig.load(model.folder / "towers.json")
    if not shape.layers:
        raise ConfigError(
            f"{model.manifest.name} has static queries, which do not learn with pairs; adapt the model with layers that it "
            "was made of, then run `glow static-queries` on the result"
        )
    towers = shape.model_dump(include={"weight_side", "weight_form", "gain", "pooling_gain", "pooling"})
    layers = {"init_layers": range(shape.layers), "document_layers": range(shape.document.layers)}
    recipe = TrainConfig.load_toml(RECIPE).model_dump()
    changes = {
        "seed": seed,
        "fields": schema.name,
        "document_tokens": schema.document_tokens,
        "one_field_id": schema.one_field_id,
        "weighting": model.preprocessor.weighting.model_dump(),
        "towers": recipe["towers"] | towers | layers,
        "optimizer": recipe["optimizer"] | {"max_steps": max_steps},
    }
    return TrainConfig.model_validate(recipe | changes)


def pretrained_start(
    model: Model,
    corpus: Path,
    work: Path,
    kind: PretrainingKind,
    minutes: float,
    seed: int,
    device: TrainingDevice,
    say: Say,
    tell: Tell,
) -> tuple[Path, dict[str, Any]]:
    """Pre-trains the document tower on a corpus; the query tower adapts to it in the later training.

    Args:
        model: the model; its shared token embedding matrix stays unchanged.
        corpus: JSON Lines of documents.
        work: directory for intermediate files.
        kind: the objective.
        minutes: duration.
        seed, device, say, tell: as for `glow.training.train`.

    Returns:
        A checkpoint of both towers, and the report of the pre-training.
    """
    shape = TowerConfig.load(model.folder / "towers.json")
    config = PretrainConfig.model_validate(
        {
            "name": "adapt",
            "seed": seed,
            "pretraining": {"kind": kind, "length": LENGTH, "sequences": SEQUENCES, "specials": 1},
            "encoder": {
                "init_layers": tuple(range(shape.document.layers)),
                "dropout": 0.0,
                "train_words": False,
            },
            "optimizer": {"batch_tokens": BATCH_TOKENS, "learning_rate": RATE},
        }
    )
    given = Given(out=work / "encoder", init=model.folder, corpora=[corpus], minutes=minutes, device=device)
    report = train(config, given, say, tell)
    towers = read_towers(model)
    return_to_tower(load_pretrained(given.out).model.encoder, towers.document)
    save_checkpoint(work / "start", towers, model.preprocessor, report)
    return work / "start", report
