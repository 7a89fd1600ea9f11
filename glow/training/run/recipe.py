"""The recipe of a run: data, model, objective and measures. `glow.training.run.loop` trains it."""

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
"""Measures the development set: figures by name, higher is better; the model stays in training mode."""


class Data(Protocol[ReadOut]):
    """Access to batches by step."""

    def steps(self, processes: int) -> int:
        """Steps of a run with this number of processes, each with one batch per step; 0 if there are fewer batches."""

    def batch(self, step: int, process: int, processes: int) -> ReadOut:
        """A batch; it depends only on the run's seed and the arguments, so a resumed run skips earlier ones."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The context of a loss: device, precision and step.

    Attributes:
        device, autocast: the device, and the context of the matrix products' precision.
        precision: the configured precision.
        step, steps: step from 0, and the run's number of steps.
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
    """The result of an objective for a batch.

    Attributes:
        value: the loss, a scalar.
        units: number of pairs or tokens, for the speed.
        figures: figures for the metrics.
        later: second passes after the gradients of `value` (gradient caching).
        shown: the number to show instead of the value; None: the value.
    """

    value: Tensor
    units: int
    figures: Mapping[str, float] = field(default_factory=dict)
    later: Sequence[Callable[[], None]] = ()
    shown: Tensor | None = None


class Keep(Protocol):
    """Writes a checkpoint of a trained model."""

    def __call__(self, folder: Path, report: Mapping[str, Any]) -> None:
        """Writes it atomically; replaces an older one."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe(Generic[Read]):
    """The parts of a run.

    Attributes:
        config: its options.
        data: its batches.
        model: the model for the checkpoint; a part of the objective.
        objective: a module with the model and parts for training; maps a batch and a moment to a `Loss`.
        keep: writes the checkpoint.
        origins: hashes of the inputs that decide the run, besides configuration and initial weights.
        groups: parameters with another rate; the first group whose pattern matches a name counts.
        adam, rate: the optimizer's constants, and the learning rate schedule.
        measures: measures the development set; None without one.
        about: additional members of the report.
        unit: unit of the speed.
        on_cpu: whether the objective runs only on the CPU.
        minutes: time limit, converted to steps by the speed of the first ones; 0: the data's number of steps.
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
