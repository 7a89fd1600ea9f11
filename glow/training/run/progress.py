"""Where a training run stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Position", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What is shown after a step.

    Attributes:
        step, steps: done, and to be done.
        last, loss: of this step, and the mean of the last 50.
        speed: units (pairs, pieces) a second of all processes, since the start of this call.
        unit: of the speed.
        figures: what the objective says of the step, if it was recorded.
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
    """What a resumed run must know beside weights and moments.

    Attributes:
        step, steps: done, and planned (0: not planned yet).
        best_step, best_score: where the development set was best (0 and no number before it was measured), and its value.
        looks_since_best: measurements since then.
    """

    step: int = 0
    steps: int = 0
    best_step: int = 0
    best_score: float | None = None
    looks_since_best: int = 0

    def look(self, score: float) -> bool:
        """Notes a measurement after `step` steps; whether it is the best so far."""
        if self.best_score is None or score > self.best_score:
            self.best_score, self.best_step, self.looks_since_best = score, self.step, 0
            return True
        self.looks_since_best += 1
        return False
