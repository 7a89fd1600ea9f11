"""What a check with containers promises and what it found, and a load under which something is done."""

import sys
import time
from collections.abc import Callable

from tests.deploy.engine import Project
from tests.deploy.load import Load

__all__ = ["SETTLE_S", "Checks", "under_load", "until"]

SETTLE_S = 5.0
"""Seconds of load before and after what is done."""


class Checks:
    """What was promised, what was found; a promise that is not kept does not keep the others from being looked at."""

    def __init__(self) -> None:
        self.failed = 0

    def note(self, kept: bool, promise: str, found: object) -> None:
        """Prints one line for a promise."""
        self.failed += not kept
        sys.stdout.write(f"{'ok    ' if kept else 'FAILED'} {promise}: {found}\n")
        sys.stdout.flush()


def under_load(project: Project, checks: Checks, what: str, act: Callable[[], None]) -> Load:
    """Does something while clients ask; no request may be lost."""
    with Load(project.port) as load:
        time.sleep(SETTLE_S)
        act()
        time.sleep(SETTLE_S)
    found = f"{len(load.lost)} of {load.answered + len(load.lost)}, slowest {load.slowest_s:.2f} s {load.lost[:3]}"
    checks.note(load.answered > 0 and not load.lost, f"lost while {what}", found)
    return load


def until(happens: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Waits for something to happen; returns whether it did."""
    end = time.monotonic() + limit_s
    while not (happened := happens()) and time.monotonic() < end:
        time.sleep(0.2)
    return happened
