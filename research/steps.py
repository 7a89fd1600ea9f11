"""Training for studies, `glow.training`'s loop over random batches in a temporary directory, and measures of rankings."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from glow.evaluation import Evaluation, evaluate
from glow.records import Hit, Qrel
from glow.training.data import Collection
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

UNCLIPPED = 1e9
"""A gradient norm limit that no gradient reaches."""
ADAM = Adam(eps=1e-8)
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Draws(Generic[Read]):
    """A run's batches, each drawn with its own generator."""

    seed: int
    count: int  # of steps
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

    The rate rises in `warmup` steps and ends at the fraction `floor`, or follows `rate`. The losses of all steps are returned.
    """
    losses: list[float] = []

    def note(progress: Progress) -> None:
        losses.append(progress.last)
        tell(progress)

    config = RunConfig(name="study", seed=draws.seed, checkpoint_steps=draws.count, optimizer=options)
    objective, schedule = _Objective(model, loss), rate or floored(warmup, floor)
    recipe = Recipe(
        config, draws, model, objective, lambda out, report: None, [], groups, adam, schedule, unit="steps"
    )
    with tempfile.TemporaryDirectory() as folder:
        run(recipe, Place(Path(folder), device=device), note)
    return losses


def measured(collection: Collection, ranked: Iterable[Iterable[int]], names: Sequence[str]) -> Evaluation:
    """Measures the rows of each query's best documents, best first."""
    queries = list(zip(collection.query_ids, collection.relevant, strict=True))
    qrels = [Qrel(query, str(row), 1) for query, relevant in queries for row in sorted(relevant)]
    run = {
        query: [Hit(str(row), -float(place)) for place, row in enumerate(rows)]
        for query, rows in zip(collection.query_ids, ranked, strict=True)
    }
    return evaluate(run, qrels, names)
