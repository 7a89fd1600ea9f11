"""Which batch a step takes: epochs of batches in a drawn order, shared out over processes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Epochs", "Turn"]

Rows = tuple[int, NDArray[np.int64]]
"""A collection's number, and which of its pairs or queries."""


class Turn(NamedTuple):
    """A batch of an epoch: its rows, and the source of chance for what is drawn for it alone."""

    collection: int
    rows: NDArray[np.int64]
    random: np.random.Generator


class Epochs:
    """Batches by their step.

    Args:
        batches: of an epoch.
        epochs, max_steps: passes, and where a run stops earlier (0: no bound).
        seed: of the order; an epoch's depends on it and on the epoch alone, so a run can resume.
        plan: the batches of an epoch, drawn by a generator that then draws their order.
    """

    def __init__(
        self,
        batches: int,
        epochs: int,
        max_steps: int,
        seed: int,
        plan: Callable[[np.random.Generator], list[Rows]],
    ) -> None:
        self.batches, self._epochs, self._max_steps = batches, epochs, max_steps
        self._seed, self._plan = seed, plan
        self._known: tuple[int, list[Rows], NDArray[np.int64]] = (-1, [], np.empty(0, np.int64))

    def steps(self, processes: int) -> int:
        """Steps of a run of so many processes, each of which takes a batch a step."""
        steps = self.batches // processes * self._epochs
        return min(steps, self._max_steps) if self._max_steps else steps

    def turn(self, step: int, process: int, processes: int) -> Turn:
        """The batch of a step and process."""
        epoch, place = divmod(step, self.batches // processes)
        if self._known[0] != epoch:
            random = np.random.default_rng([self._seed, epoch])
            batches = self._plan(random)
            self._known = (epoch, batches, random.permutation(len(batches)))
        _, batches, order = self._known
        choice = int(order[place * processes + process])
        return Turn(*batches[choice], np.random.default_rng([self._seed, epoch, choice]))
