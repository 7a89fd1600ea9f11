"""What one run is made of: data, a model, an objective and what measures it. `glow.training.run.loop` trains it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from glow.training.run.optimizer import Adam, Group, Schedule, constant
from glow.training.run.options import RunConfig

__all__ = ["Data", "Keep", "Loss", "Measures", "Moment", "Recipe"]

Read = TypeVar("Read")
ReadOut = TypeVar("ReadOut", covariant=True)
Measures = Callable[["Moment"], dict[str, float]]
"""Figures of a development set by name, the higher the better; the model is in the mode that it trains in."""


class Data(Protocol[ReadOut]):
    """Batches by their number."""

    def steps(self, processes: int) -> int:
        """Steps of a run of so many processes, each of which takes a batch a step; 0 if there are fewer batches."""

    def batch(self, step: int, process: int, processes: int) -> ReadOut:
        """A batch; it follows from the run's seed and these three alone, so that a resumed run makes only its own."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Where and when a loss is computed.

    Attributes:
        device, autocast: where, and the context of the matrix products' precision.
        precision: as configured.
        step, steps: of the run, from 0.
        is_told: whether the figures of this step go into the metrics.
    """

    device: torch.device
    autocast: Callable[[], AbstractContextManager[None]]
    precision: str
    step: int
    steps: int
    is_told: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """What an objective says of a batch.

    Attributes:
        value: a scalar.
        units: what speed is counted in: pairs, pieces.
        figures: for the metrics.
        later: second passes after the gradients of `value` (gradient caching).
        shown: what is told in place of the value; None: the value.
    """

    value: Tensor
    units: int
    figures: Mapping[str, float] = field(default_factory=dict)
    later: Sequence[Callable[[], None]] = ()
    shown: Tensor | None = None


class Keep(Protocol):
    """Writes a checkpoint of a trained model."""

    def __call__(self, folder: Path, report: Mapping[str, Any]) -> None:
        """Writes it whole or not at all, in the place of an older one."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe(Generic[Read]):
    """One run.

    Attributes:
        config: its options.
        data: what it reads.
        model: what the checkpoint holds; a part of the objective.
        objective: a module that holds the model and what only training needs; called with a batch and a moment, it returns a `Loss`.
        keep: writes the checkpoint.
        origins: hashes of all that decides the run beside the configuration and the objective's initial weights.
        groups: parameters that learn at another rate; the first whose pattern is found in a name counts.
        adam, rate: the optimizer's constants, and the course of the rate.
        measures: of the development set; None: there is none.
        about: what the report says beside what it says of every run.
        unit: of speed.
        on_cpu: whether the objective computes on the CPU alone.
        minutes: how long the run may take, by the speed of its first steps; 0: as many steps as the data says.
    """

    config: RunConfig
    data: Data[Read]
    model: nn.Module
    objective: nn.Module
    keep: Keep
    origins: Sequence[str]
    groups: Sequence[Group] = ()
    adam: Adam = field(default_factory=Adam)
    rate: Schedule = constant
    measures: Measures | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "pairs"
    on_cpu: bool = False
    minutes: float = 0.0
