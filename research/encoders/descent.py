"""Runs over tensors on one device, and a tower that learns given vectors of texts.

N   texts        H   dimensions
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.commands import say
from glow.nn import Tower
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
    linear,
    run,
)
from research.encoders.flat import Flat

__all__ = ["TEMPERATURE", "Draws", "descend", "distance", "imitate"]

TEMPERATURE = 0.05
PULL, KEYS, BLOCKS, SHOWN_STEPS = 10.0, 3, 32, 200
ADAM = Adam(betas=(0.9, 0.98))
Drawn = TypeVar("Drawn")


class Draws(Generic[Drawn]):
    """Batches from an endless iterator, as the training loop takes them."""

    def __init__(self, batches: Iterator[Drawn], steps: int) -> None:
        self._batches, self._steps = batches, steps

    def steps(self, processes: int) -> int:
        """The run's steps."""
        return self._steps

    def batch(self, step: int, process: int, processes: int) -> Drawn:
        """The next batch."""
        return next(self._batches)


def descend(
    objective: nn.Module, data: Draws[Any], rate: float, warmup: float, groups: Sequence[Group] = ()
) -> None:
    """Trains a module's parameters in place.

    Args:
        objective: maps a batch and a moment to a loss.
        data: its batches.
        rate, warmup: the highest learning rate, and the fraction of the steps in which it rises.
        groups: parameters with another rate.
    """
    device = next(objective.parameters()).device
    config = RunConfig(
        name="encoders", optimizer=OptimizerOptions(learning_rate=rate), checkpoint_steps=10**6
    )
    recipe = Recipe(
        config, data, objective, objective, _keep_nothing, [], groups, ADAM, rate=linear(warmup), unit="texts"
    )
    with TemporaryDirectory() as folder:
        run(recipe, Place(Path(folder), None, "cuda" if device.type == "cuda" else "cpu"), _tell)
    objective.to(device)


def _tell(progress: Progress) -> None:
    if progress.step % SHOWN_STEPS == 0 or progress.step in (20, progress.steps):
        say(f"step {progress.step:,}: loss {progress.loss:.4f}")


def _keep_nothing(folder: Path, report: Mapping[str, Any]) -> None:
    """No checkpoint: the caller has the module."""


def distance(found: Tensor, wanted: Tensor) -> Tensor:
    """Kullback-Leibler distance of the softmax of each row from that of the wanted scores, a scalar."""
    found, wanted = (functional.log_softmax(scores / TEMPERATURE, 1) for scores in (found, wanted))
    return functional.kl_div(found, wanted, log_target=True, reduction="batchmean")


def imitate(
    tower: Tower, texts: Flat, aims: Tensor, steps: int, batch: int, rate: float, warmup: float, spread: bool
) -> None:
    """Trains a tower in place, except for its token embeddings and distances.

    Args:
        tower: on the device of the texts, in evaluation mode.
        texts, aims: texts and their vectors, float16 [N, H].
        steps, batch, rate, warmup: of `descend`, with the texts of a step.
        spread: whether similarities to vectors of other texts are learned too.
    """
    for name, value in tower.named_parameters():
        value.requires_grad_(not name.startswith(("words.", "distances.")))
    batches = _of_like_length(texts.lengths, min(batch, len(aims)))
    descend(_Imitation(tower, texts, aims, spread), Draws(batches, steps), rate, warmup)


class _Imitation(nn.Module):
    def __init__(self, tower: Tower, texts: Flat, aims: Tensor, spread: bool) -> None:
        super().__init__()
        self.tower = tower
        self._texts, self._aims, self._spread = texts, aims, spread

    def forward(self, rows: Tensor, moment: Moment) -> Loss:
        aims, wanted = self._aims, self._aims[rows].float()
        with moment.autocast():
            found = self.tower(*self._texts.batch(rows, self.tower.positions.num_embeddings, 8)).float()
        loss = PULL * (1.0 - (found * wanted).sum(1)).mean()
        if self._spread:
            others = aims[torch.randint(0, len(aims), (KEYS * len(rows),), device=aims.device)]
            keys = torch.cat([wanted, others.float()])
            loss = loss + distance(found @ keys.T, wanted @ keys.T)
        return Loss(loss, len(rows))


def _of_like_length(lengths: Tensor, size: int) -> Iterator[Tensor]:
    while True:
        for chunk in torch.split(torch.randperm(len(lengths), device=lengths.device), size * BLOCKS):
            parts = torch.split(chunk[torch.argsort(lengths[chunk])], size)
            yield from (parts[at] for at in torch.randperm(len(parts)).tolist() if len(parts[at]) == size)
