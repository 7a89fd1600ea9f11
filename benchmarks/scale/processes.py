"""Runs measurements in separate processes, and reads their time and memory."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["MIB", "PeakMemory", "alone", "say", "status_bytes"]

T = TypeVar("T")
SAMPLE_S = 0.05
MIB = 2**20
PR_SET_PDEATHSIG = 1  # of Linux's prctl


class PeakMemory:
    """Peak private memory of this process in the block, without mapped pages of files."""

    def __enter__(self) -> "PeakMemory":
        self.own_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.own_bytes = max(self.own_bytes, status_bytes("RssAnon"))


def status_bytes(field: str) -> int:
    """A kB field of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def alone(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function in a new process with its own memory."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=end_with, initargs=(os.getpid(),)) as pool:
        return pool.submit(function, *arguments).result()


def end_with(parent: int) -> None:
    """Makes this process end with its parent, because a remaining one would disturb later measurements."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    """Prints a line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
