"""Stages of a build as people see them: a bar on a terminal, plain lines elsewhere; and their times."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from glow.commands import Advance, progress, write_line
from glow_index_builder.memory import peak_memory_bytes, release_memory, reset_peak_memory

__all__ = ["Stages"]


class Stages:
    """Runs stages one after another, tells how far they are and keeps how long they took.

    Args:
        out: where progress goes; bars where it is a terminal.

    Attributes:
        seconds: stage -> seconds.
        peaks: stage -> the most memory in bytes that this process held in it.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
        """One stage; yields a function to call with what was done.

        Args:
            name: for people and for the report.
            total: what there is to do; None where it is not known or comes in one piece.
            unit: of the total.
        """
        start = time.perf_counter()
        release_memory()
        reset_peak_memory()
        with progress(self._out, name, total, unit) as advance:
            yield advance
        self.seconds[name] = time.perf_counter() - start
        self.peaks[name] = peak_memory_bytes()

    def done_before(self, name: str, seconds: float, peak: int) -> None:
        """Tells of a stage that an earlier run has done, and what it took there."""
        self.seconds[name], self.peaks[name] = seconds, peak
        self.note(f"{name}: done before")

    def note(self, line: str) -> None:
        """Tells people something beside the stages."""
        write_line(self._out, line)
