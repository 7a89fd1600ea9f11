"""AdamW over groups of parameters, and learning rate schedules."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from glow.training.run.options import OptimizerOptions

__all__ = [
    "Adam",
    "Group",
    "Schedule",
    "constant",
    "floored",
    "learning_rate",
    "linear",
    "make_optimizer",
    "set_rates",
]

Schedule = Callable[[int, int], float]
"""(step from 0, steps) -> fraction of the peak rate."""


@dataclass(frozen=True, slots=True)
class Adam:
    """AdamW's constants."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters with other settings.

    Attributes:
        pattern: a regular expression that their names contain.
        rate: factor of the learning rate.
        decay: whether weight decay applies; None: only to matrices, as for all other parameters.
    """

    pattern: str
    rate: float = 1.0
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
