"""Configuration of learned impacts' training: strict TOML with a table `[impacts]`."""

from typing import Literal

from pydantic import Field

from glow.options import StrictModel
from glow.training.run import OptimizerOptions, RunConfig

__all__ = ["HeadOptions", "ImpactsConfig", "ImpactsObjective", "ImpactsOptimizer"]


class HeadOptions(StrictModel):
    """The head.

    Attributes:
        dimensions: K, of a word's and a token's direction; it decides the cost of building an index.
    """

    dimensions: int = Field(default=128, ge=1)


class ImpactsObjective(StrictModel):
    """The loss: cross-entropy of the relevant document among those of the batch, by the sum of BM25 and learned impacts.

    Attributes:
        negatives: non-relevant first-stage hits per query and step.
        depth: rank down to which they are drawn.
        penalty: factor of the mean learned impact in the loss. It makes most impacts 0, so that pruning costs little.
        vocabulary: words of the collection per step that the penalty includes in addition to the queries' words.
    """

    negatives: int = Field(default=1, ge=0)
    depth: int = Field(default=30, ge=1)
    penalty: float = Field(default=1.0, ge=0.0)
    vocabulary: int = Field(default=0, ge=0)


class ImpactsOptimizer(OptimizerOptions):
    """The optimizer.

    Attributes:
        batch_size: queries per step, from one collection.
        steps: total number of steps.
        warmup: steps in which the rate rises; it then falls to a fiftieth. The penalty rises for four times as many.
        balance: exponent of a collection's number of queries in its sampling weight; 1: proportional, 0: uniform.
    """

    batch_size: int = Field(default=64, ge=2)
    steps: int = Field(default=1600, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0.0)
    warmup: int = Field(default=50, ge=1)
    balance: float = Field(default=0.75, ge=0.0, le=1.0)
    precision: Literal["fp32"] = "fp32"


class ImpactsConfig(RunConfig):
    """The configuration of a training run of learned impacts."""

    checkpoint_steps: int = Field(default=250, ge=1)
    impacts: HeadOptions
    objective: ImpactsObjective = ImpactsObjective()
    optimizer: ImpactsOptimizer = ImpactsOptimizer()
