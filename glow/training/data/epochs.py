"""Assigns batches to steps: epochs of batches in random order, distributed over processes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Epochs", "Turn"]

Rows = tuple[int, NDArray[np.int64]]
"""A collection's number, and numbers of its pairs or queries."""


class Turn(NamedTuple):
    """A batch of an epoch: its rows, and a random generator of its own."""

    collection: int
    rows: NDArray[np.int64]
    random: np.random.Generator


class Epochs:
    """Batches by their step.

    Args:
        batches: batches per epoch.
        epochs, max_steps: passes, and the most steps (0: no limit).
        seed: seed of the order. An epoch's order depends only on it and the epoch, so a run can resume.
        plan: draws the batches of an epoch with the generator that then draws their order.
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
        """Steps of a run with this number of processes, which take one batch each per step."""
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
