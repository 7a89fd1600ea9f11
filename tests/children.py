"""Processes that tests started and that outlived them; each is found by a mark in its environment, whoever its parent is by now."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

__all__ = ["children_end"]

MARK = "TEST_PROCESS_MARK"
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Of the interpreter's own; they end with the process that they serve."""
WITHIN_S = 12.0
"""A parser of pages that has nothing to do ends itself after 10 s."""


@contextmanager
def children_end() -> Iterator[None]:
    """Ends what is left of all processes that were started within, and names it.

    Raises:
        AssertionError: if any was left.
    """
    mark = os.environ[MARK] = uuid.uuid4().hex
    try:
        yield
    finally:
        del os.environ[MARK]
    left = _marked(mark)
    _, alive = psutil.wait_procs(left, WITHIN_S)  # what was told to end may be at it
    told = [" ".join(_command(each)) for each in alive]
    for each in alive:
        each.kill()
    assert not told, f"{len(told)} processes outlived the tests that started them: {'; '.join(told)}"


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        try:
            is_ours = each.pid != os.getpid() and each.environ().get(MARK) == mark
        except psutil.Error:  # gone meanwhile, or somebody else's
            continue
        if is_ours and not any(helper in " ".join(_command(each)) for helper in HELPERS):
            found.append(each)
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return ["(gone)"]
