"""Options of every configuration: name, seed, optimizer and measurement of development sets."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glow.options import StrictModel

__all__ = ["OptimizerOptions", "RunConfig", "WatchConfig"]


class OptimizerOptions(StrictModel):
    """Options of AdamW.

    Attributes:
        learning_rate: the peak learning rate.
        weight_decay: decoupled weight decay; none on biases, norms and scalars.
        clip_norm: limit of the global gradient norm.
        precision: `fp32`, `bf16` or (only on GPUs) `fp16` autocast.
    """

    learning_rate: float = Field(default=1e-4, gt=0.0)
    weight_decay: float = Field(default=0.01, ge=0.0)
    clip_norm: float = Field(default=1.0, gt=0.0)
    precision: Literal["fp32", "bf16", "fp16"] = "bf16"


class WatchConfig(StrictModel):
    """The measurement of development sets (`--dev`) during training.

    Attributes:
        steps: steps between measurements; 0: never.
        patience: measurements without improvement after which training stops and restores the best
            weights; 0: train to the last step and keep its weights.
        queries, documents: most queries, and most documents in addition to their relevant ones, drawn once by the
            run's seed; 0: all.
    """

    steps: int = Field(default=0, ge=0)
    patience: int = Field(default=0, ge=0)
    queries: int = Field(default=500, ge=0)
    documents: int = Field(default=3000, ge=0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.patience and not self.steps:
            raise ValueError(
                f"patience needs steps above 0, found patience {self.patience} and steps 0; set both or leave patience out"
            )
        return self


class RunConfig(StrictModel):
    """The configuration of a run.

    Attributes:
        name: name of the run, for reports.
        seed: seed of every random choice.
        checkpoint_steps: steps between saved states.
        optimizer: each kind adds its own options.
        watch: measurement of development sets.
    """

    name: str
    seed: int = 0
    checkpoint_steps: int = Field(default=200, ge=1)
    optimizer: OptimizerOptions = OptimizerOptions()
    watch: WatchConfig = WatchConfig()
