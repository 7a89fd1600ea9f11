"""Processes that die at a chosen step of their work, forked from one without threads."""

import os
import traceback
from collections.abc import Callable
from typing import Any

DEATH = 77


def arm(deadly: int, steps: tuple[str, ...]) -> list[str]:
    """Makes the process die at moment `deadly`: 2n is before step n, 2n + 1 after it; -1 never. The moments so far."""
    moments: list[str] = []

    def reach(moment: str) -> None:
        moments.append(moment)
        if len(moments) - 1 == deadly:
            os._exit(DEATH)

    def watched(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            reach(f"before {name}")
            result = function(*arguments, **options)
            reach(f"after {name}")
            return result

        return call

    for name in steps:
        setattr(os, name, watched(name, getattr(os, name)))
    return moments


def in_child(work: Callable[[], object]) -> int:
    """Runs it in a child; its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
