"""Training for studies: `glow.training`'s loop over random batches, in a temporary directory."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from glow.training.run import (
    Adam,
    Group,
    Loss,
    Moment,
    OptimizerOptions,
    Place,
    Progress,
    Recipe,
    RunConfig,
    TrainingDevice,
    floored,
    run,
)

__all__ = ["UNCLIPPED", "Draws", "take_steps"]

UNCLIPPED = 1e9
"""A gradient norm limit that no gradient reaches."""
ADAM = Adam(eps=1e-8)
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Draws(Generic[Read]):
    """A run's batches, each drawn with its own generator.

    Attributes:
        seed: seed of all batches.
        count: number of steps.
        draw: draws a batch.
    """

    seed: int
    count: int
    draw: Callable[[np.random.Generator], Read]

    def steps(self, processes: int) -> int:
        """The number of steps."""
        return self.count

    def batch(self, step: int, process: int, processes: int) -> Read:
        """The batch of a step."""
        return self.draw(np.random.default_rng([self.seed, step]))


class _Objective(nn.Module, Generic[Read]):
    def __init__(self, model: nn.Module, loss: Callable[[Read, Moment], Tensor]) -> None:
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, batch: Read, moment: Moment) -> Loss:
        return Loss(self._loss(batch, moment), units=1)


def take_steps(
    model: nn.Module,
    draws: Draws[Read],
    loss: Callable[[Read, Moment], Tensor],
    options: OptimizerOptions,
    warmup: int = 1,
    floor: float = 0.0,
    tell: Callable[[Progress], None] = lambda progress: None,
    rate: Callable[[int, int], float] | None = None,
    groups: Sequence[Group] = (),
    adam: Adam = ADAM,
    device: TrainingDevice = "cpu",
) -> list[float]:
    """Trains a model in place by AdamW, with torch's constants unless others are given; leaves it in evaluation mode.

    Args:
        model: holds all trainable parameters.
        draws: the batches.
        loss: computes a batch's loss, a scalar.
        options: optimizer options.
        warmup, floor: steps in which the rate rises, and its final fraction.
        tell: called after every step.
        rate: another schedule than that of `warmup` and `floor`.
        groups, adam, device: as for `Recipe` and `Place`.

    Returns:
        The loss of every step.
    """
    losses: list[float] = []

    def note(progress: Progress) -> None:
        losses.append(progress.last)
        tell(progress)

    config = RunConfig(name="study", seed=draws.seed, checkpoint_steps=draws.count, optimizer=options)
    recipe = Recipe(
        config,
        draws,
        model,
        _Objective(model, loss),
        lambda out, report: None,
        [],
        groups,
        adam,
        rate or floored(warmup, floor),
        unit="steps",
    )
    with tempfile.TemporaryDirectory() as folder:
        run(recipe, Place(Path(folder), device=device), note)
    return losses
