"""The recipe of a run, its options, its optimizer and its progress. `glow.training.run.loop` trains it."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from glow.options import StrictModel

Precision = Literal["fp32", "bf16"]


class OptimizerOptions(StrictModel):
    """Options of AdamW."""

    learning_rate: float = Field(default=1e-4, gt=0.0)  # the peak learning rate
    # decoupled weight decay; none on biases, norms and scalars
    weight_decay: float = Field(default=0.01, ge=0.0)
    clip_norm: float = Field(default=1.0, gt=0.0)  # limit of the global gradient norm
    precision: Precision = "bf16"  # of matrix products (autocast)


class WatchConfig(StrictModel):
    """The measurement of development sets (`--dev`) during training."""

    steps: int = Field(default=0, ge=0)  # steps between measurements; 0: never
    # measurements without improvement after which training stops and restores the best weights; 0: train to the last step and keep its weights
    patience: int = Field(default=0, ge=0)
    # queries, documents: most queries, and most documents in addition to their relevant ones, drawn once by the run's seed; 0: all
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
    """The configuration of a run."""

    name: str  # name of the run, for reports
    seed: int = 0  # seed of every random choice
    checkpoint_steps: int = Field(default=200, ge=1)  # steps between saved states
    optimizer: OptimizerOptions = OptimizerOptions()  # each kind adds its own options
    watch: WatchConfig = WatchConfig()  # measurement of development sets


Schedule = Callable[[int, int], float]
"""(step from 0, steps) -> fraction of the peak rate."""


@dataclass(frozen=True, slots=True)
class Adam:
    """AdamW's constants."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters with other settings."""

    pattern: str  # a regular expression that their names contain
    rate: float = 1.0  # factor of the learning rate
    # whether weight decay applies; None: only to matrices, as for all other parameters
    decay: bool | None = None


def make_optimizer(
    module: nn.Module, groups: Sequence[Group], options: OptimizerOptions, adam: Adam
) -> torch.optim.AdamW:
    """AdamW over a module's trainable parameters, without decay on biases, norms and scalars."""
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            group = next((group for group in groups if re.search(group.pattern, name)), Group(""))
            decays = parameter.ndim > 1 if group.decay is None else group.decay
            key = (group.rate, options.weight_decay if decays else 0.0)
            found.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [{"params": each, "weight_decay": decay, "factor": rate} for (rate, decay), each in found.items()],
        lr=options.learning_rate,
        betas=adam.betas,
        eps=adam.eps,
        fused=True,
    )


def set_rates(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the rate of each group."""
    group: dict[str, Any]
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def constant(step: int, steps: int) -> float:
    """A constant rate."""
    return 1.0


def linear(warmup: float) -> Schedule:
    """A linear rise over the fraction `warmup` of the steps, then a linear fall to 0 (G6)."""
    # Steps count from 1, because a first step at rate 0 would be wasted.
    return lambda step, steps: learning_rate(step + 1, steps + 1, 1.0, warmup)


def floored(warmup: int, floor: float) -> Schedule:
    """A linear fall from the first step to a floor, times a rise over `warmup` steps."""
    return lambda step, steps: min(1.0, (step + 1) / max(warmup, 1)) * max(floor, 1.0 - step / steps)


def learning_rate(step: int, steps: int, peak: float, warmup: float) -> float:
    """Rate of a step: linear rise over the fraction `warmup`, then linear fall to 0 at `steps` (G6)."""
    rise = warmup * steps
    if step < rise:
        return peak * step / rise
    return peak * max(steps - step, 0) / max(steps - rise, 1.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress to show after a step."""

    # step, steps: finished and total steps
    step: int
    steps: int
    # last, loss: loss of this step, and the mean of the last 50
    last: float
    loss: float
    speed: float  # units (pairs, tokens) per second of all processes since the start of this call
    unit: str = "pairs"  # unit of the speed
    # the objective's figures of the step, if recorded
    figures: Mapping[str, float] = field(default_factory=dict)
    # figures of the development set, if it was measured after this step
    dev: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Position:
    """The state of a resumed run besides weights and moments."""

    # step, steps: finished and planned steps (0: not planned yet)
    step: int = 0
    steps: int = 0
    # best_step, best_score: step and value of the best development measure (0 and NaN before the first)
    best_step: int = 0
    best_score: float | None = None
    looks_since_best: int = 0  # measurements since then

    def look(self, score: float) -> bool:
        """Records a measurement after `step` steps; returns whether it is the best so far."""
        if self.best_score is None or score > self.best_score:
            self.best_score, self.best_step, self.looks_since_best = score, self.step, 0
            return True
        self.looks_since_best += 1
        return False


def parts_hash(parts: Sequence[str]) -> str:
    """SHA-256 of texts in their order, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def parameters_hash(module: nn.Module) -> str:
    """SHA-256 over names and values of a module's parameters, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, parameter in module.named_parameters():
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


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
    """The context of a loss: device, precision and step."""

    # device, autocast: the device, and the context of the matrix products' precision
    device: torch.device
    autocast: Callable[[], AbstractContextManager[None]]
    precision: str  # the configured precision
    # step, steps: step from 0, and the run's number of steps
    step: int
    steps: int
    is_told: bool = False  # whether the figures of this step go into the metrics


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """The result of an objective for a batch."""

    value: Tensor  # the loss, a scalar
    units: int  # number of pairs or tokens, for the speed
    figures: Mapping[str, float] = field(default_factory=dict)  # figures for the metrics
    shown: Tensor | None = None  # the number to show instead of the value; None: the value


Keep = Callable[[Path, Mapping[str, Any]], None]
"""Writes a checkpoint of a trained model, with a report, atomically; replaces an older one."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe(Generic[Read]):
    """The parts of a run."""

    config: RunConfig  # its options
    data: Data[Read]  # its batches
    model: nn.Module  # the model for the checkpoint; a part of the objective
    # a module with the model and parts for training; maps a batch and a moment to a `Loss`
    objective: nn.Module
    keep: Keep  # writes the checkpoint
    # hashes of the inputs that decide the run, besides configuration and initial weights
    origins: Sequence[str]
    # parameters with another rate; the first group whose pattern matches a name counts
    groups: Sequence[Group] = ()
    # adam, rate: the optimizer's constants, and the learning rate schedule
    adam: Adam = field(default_factory=Adam)
    rate: Schedule = constant
    measures: Measures | None = None  # measures the development set; None without one
    about: Mapping[str, Any] = field(default_factory=dict)  # additional members of the report
    unit: str = "pairs"  # unit of the speed
    on_cpu: bool = False  # whether the objective runs only on the CPU
    # time limit, converted to steps by the speed of the first ones; 0: the data's number of steps
    minutes: float = 0.0
