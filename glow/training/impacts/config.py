"""Configuration of learned impacts' training: strict TOML, told from the others by its table `[impacts]`."""

from typing import Literal

from pydantic import Field

from glow.options import StrictModel
from glow.training.run import OptimizerOptions, RunConfig

__all__ = ["HeadOptions", "ImpactsConfig", "ImpactsObjective", "ImpactsOptimizer"]


class HeadOptions(StrictModel):
    """The head.

    Attributes:
        dimensions: K, of a word's and a token's direction; it decides what building an index costs.
    """

    dimensions: int = Field(default=128, ge=1)


class ImpactsObjective(StrictModel):
    """What is minimised: cross-entropy of the relevant document among those of the batch, over BM25 and learned impacts together.

    Attributes:
        negatives: documents that a first search found and that are not relevant, a query and step.
        depth: how deep in that search's ranking they are drawn.
        penalty: times the mean learned impact, which makes most of them 0, so that pruning costs little.
        vocabulary: words of the collection that the penalty sees beside those of the queries, a step.
    """

    negatives: int = Field(default=1, ge=0)
    depth: int = Field(default=30, ge=1)
    penalty: float = Field(default=1.0, ge=0.0)
    vocabulary: int = Field(default=0, ge=0)


class ImpactsOptimizer(OptimizerOptions):
    """How it is minimised.

    Attributes:
        batch_size: queries a step, of one collection.
        steps: in all.
        warmup: steps in which the rate rises; it then falls to a fiftieth. The penalty rises for four times as many.
        balance: exponent of a collection's queries in how often a batch is drawn from it; 1: as they are, 0: all alike.
    """

    batch_size: int = Field(default=64, ge=2)
    steps: int = Field(default=1600, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0.0)
    warmup: int = Field(default=50, ge=1)
    balance: float = Field(default=0.75, ge=0.0, le=1.0)
    precision: Literal["fp32"] = "fp32"


class ImpactsConfig(RunConfig):
    """A run of a head of learned impacts."""

    checkpoint_steps: int = Field(default=250, ge=1)
    impacts: HeadOptions
    objective: ImpactsObjective = ImpactsObjective()
    optimizer: ImpactsOptimizer = ImpactsOptimizer()
