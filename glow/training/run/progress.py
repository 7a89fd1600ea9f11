"""Where a training run stands."""

from dataclasses import dataclass, field

__all__ = ["Position", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What is shown after a step.

    Attributes:
        step, steps: done, and to be done.
        loss: mean of the last 50 steps.
        pairs_per_second: of all processes, since the start of this call.
        dev: RR@10 by collection, where it was measured after this step.
    """

    step: int
    steps: int
    loss: float
    pairs_per_second: float
    dev: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Position:
    """What a resumed run must know beside weights and moments.

    Attributes:
        step: steps done.
        best_step, best_score: where dev retrieval was best (0 and -1 before it was measured), and its value.
        looks_since_best: measurements since then.
    """

    step: int = 0
    best_step: int = 0
    best_score: float = -1.0
    looks_since_best: int = 0
