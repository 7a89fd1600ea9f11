"""What every configuration has: a name, a seed, an optimizer, and how a development set is watched."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glow.options import StrictModel

__all__ = ["OptimizerOptions", "RunConfig", "WatchConfig"]


class OptimizerOptions(StrictModel):
    """How a loss is minimised: AdamW.

    Attributes:
        learning_rate: its peak.
        weight_decay: decoupled; none on biases, norms and scalars.
        clip_norm: bound of the global gradient norm.
        precision: `fp32`, `bf16` or (GPU alone) `fp16` autocast.
    """

    learning_rate: float = Field(default=1e-4, gt=0.0)
    weight_decay: float = Field(default=0.01, ge=0.0)
    clip_norm: float = Field(default=1.0, gt=0.0)
    precision: Literal["fp32", "bf16", "fp16"] = "bf16"


class WatchConfig(StrictModel):
    """How a development set (`--dev`) is watched while training.

    Attributes:
        steps: how often it is measured; 0 is never.
        patience: measurements without a better one after which training stops and goes back to the best
            weights; 0 trains to the last step and keeps its weights.
        queries, documents: most queries, and most documents beside their relevant ones, that are looked at,
            drawn once by the run's seed; 0 takes all.
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
    """A whole run.

    Attributes:
        name: of the run, for people.
        seed: of every random choice.
        checkpoint_steps: how often the state for a resume is written.
        optimizer: each kind adds its own options.
        watch: of the development set.
    """

    name: str
    seed: int = 0
    checkpoint_steps: int = Field(default=200, ge=1)
    optimizer: OptimizerOptions = OptimizerOptions()
    watch: WatchConfig = WatchConfig()
