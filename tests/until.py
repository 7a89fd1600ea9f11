"""Waits for what happens soon and not at once; a busy machine takes longer, and what never happens fails the test."""

import time
from collections.abc import Callable

PATIENCE_S = 60.0


def until(holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Waits until a condition holds, which is asked some hundred times a second."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {within_s:g} s"
        time.sleep(0.01)
