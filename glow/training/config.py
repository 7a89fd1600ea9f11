"""Training options: small TOML files in `configs/`, checked as a whole before any work."""

import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from glow.errors import ConfigError
from glow.nn.attention import WeightSide
from glow.nn.towers import Pooling
from glow.schema import FieldSchema, StrictModel, describe
from glow.text import Weighting

__all__ = ["ObjectiveConfig", "OptimiserConfig", "TowersConfig", "TrainConfig"]


class TowersConfig(StrictModel):
    """Which towers to train.

    Attributes:
        init_layers: layers of the initial encoder that become layers 0, 1, …; their number is the depth.
        weight_side, pooling, dropout: as `glow.nn.TowerConfig`.
        train_words: whether the shared word table learns; a frozen one keeps rare words near their
            pre-trained place and spares a third of a step on a CPU.
    """

    init_layers: tuple[int, ...] = Field(default=(0, 2, 4), min_length=1)
    weight_side: WeightSide = "key"
    pooling: Pooling = "mean"
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    train_words: bool = True


class ObjectiveConfig(StrictModel):
    """What is minimised.

    Attributes:
        kind: `bce` (Eq. 10 with NCE sampling, docs/papers.md 1.6) or `softmax` over the batch.
        scale, shift: start of the BCE's a and c; learned unless `learn_scale` is false.
        nce_weight: share of the sampled negatives in the BCE loss.
        inverse_temperature: of NCE sampling; 1000 is close to the hardest negative, 10 to a uniform pick.
        query_mask: queries whose cosine is above it are taken as the same question.
        temperature: of the softmax.
        distill_weight: weight of 1 - cosine to a teacher's vectors, for queries and documents each; 0 is off.
    """

    kind: Literal["bce", "softmax"] = "softmax"
    scale: float = Field(default=1.0, gt=0.0)
    shift: float = 0.0
    learn_scale: bool = True
    nce_weight: float = Field(default=0.5, ge=0.0, le=1.0)
    inverse_temperature: float = Field(default=1000.0, gt=0.0)
    query_mask: float = Field(default=0.9, gt=0.0, le=1.0)
    temperature: float = Field(default=0.05, gt=0.0)
    distill_weight: float = Field(default=0.0, ge=0.0)


class OptimiserConfig(StrictModel):
    """How it is minimised.

    Attributes:
        batch_size: pairs a step.
        epochs: passes over the pairs.
        max_steps: stops earlier; 0 is no bound. The learning rate's course ends with it.
        learning_rate: the peak.
        warmup: share of the steps in which the rate rises linearly; it then falls linearly to 0.
        weight_decay: decoupled; none on biases, norms, scale and shift.
        clip_norm: bound of the global gradient norm.
        precision: `fp32`, or `bf16` autocast.
    """

    batch_size: int = Field(default=64, ge=1)
    epochs: int = Field(default=3, ge=1)
    max_steps: int = Field(default=0, ge=0)
    learning_rate: float = Field(default=1e-4, gt=0.0)
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)
    weight_decay: float = Field(default=0.01, ge=0.0)
    clip_norm: float = Field(default=1.0, gt=0.0)
    precision: Literal["fp32", "bf16"] = "bf16"


class TrainConfig(StrictModel):
    """A whole training run.

    Attributes:
        name: of the run, for people.
        fields: a schema preset's name.
        seed: of every random choice.
        checkpoint_steps: how often the state for a resume is written.
    """

    name: str
    fields: str = "glow-default"
    seed: int = 0
    checkpoint_steps: int = Field(default=200, ge=1)
    weighting: Weighting = Weighting()
    towers: TowersConfig = TowersConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimiser: OptimiserConfig = OptimiserConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            FieldSchema.preset(self.fields)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    @classmethod
    def read(cls, path: Path) -> "TrainConfig":
        """Reads a TOML file.

        Raises:
            ConfigError: it cannot be read, or holds faults; all of them are named.
        """
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
        except ValidationError as error:
            raise ConfigError(f"{path} is not valid: {describe(error)}") from error
