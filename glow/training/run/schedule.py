"""The course of the learning rate."""

__all__ = ["learning_rate"]


def learning_rate(step: int, steps: int, peak: float, warmup: float) -> float:
    """Rate of a step: linear rise over the first `warmup` share, then linear fall to 0 at `steps` (G6)."""
    rise = warmup * steps
    if step < rise:
        return peak * step / rise
    return peak * max(steps - step, 0) / max(steps - rise, 1.0)
