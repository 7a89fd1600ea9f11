"""Progress and position of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Position", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress to show after a step.

    Attributes:
        step, steps: finished and total steps.
        last, loss: loss of this step, and the mean of the last 50.
        speed: units (pairs, tokens) per second of all processes since the start of this call.
        unit: unit of the speed.
        figures: the objective's figures of the step, if recorded.
        dev: figures of the development set, if it was measured after this step.
    """

    step: int
    steps: int
    last: float
    loss: float
    speed: float
    unit: str = "pairs"
    figures: Mapping[str, float] = field(default_factory=dict)
    dev: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Position:
    """The state of a resumed run besides weights and moments.

    Attributes:
        step, steps: finished and planned steps (0: not planned yet).
        best_step, best_score: step and value of the best development measure (0 and NaN before the first).
        looks_since_best: measurements since then.
    """

    step: int = 0
    steps: int = 0
    best_step: int = 0
    best_score: float | None = None
    looks_since_best: int = 0

    def look(self, score: float) -> bool:
        """Records a measurement after `step` steps; returns whether it is the best so far."""
        if self.best_score is None or score > self.best_score:
            self.best_score, self.best_step, self.looks_since_best = score, self.step, 0
            return True
        self.looks_since_best += 1
        return False
