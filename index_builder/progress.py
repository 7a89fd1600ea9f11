"""Shows the stages of a build, with a bar on a terminal and plain lines elsewhere, and measures them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from glow.commands import Advance, progress, write_line
from glow_index_builder.memory import peak_memory_bytes, release_memory, reset_peak_memory

__all__ = ["Stages"]


class Stages:
    """Runs stages one after another, shows their progress and records their times.

    Args:
        out: stream for the progress; bars if it is a terminal.

    Attributes:
        seconds: stage -> seconds.
        peaks: stage -> peak memory of this process in bytes.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
        """Runs one stage; yields a function to call with the amount done.

        Args:
            name: shown to users and used in the report.
            total: the amount of work; None if it is unknown or indivisible.
            unit: unit of the total.
        """
        start = time.perf_counter()
        release_memory()
        reset_peak_memory()
        with progress(self._out, name, total, unit) as advance:
            yield advance
        self.seconds[name] = time.perf_counter() - start
        self.peaks[name] = peak_memory_bytes()

    def done_before(self, name: str, seconds: float, peak: int) -> None:
        """Shows a stage that an earlier run finished, and its time then."""
        self.seconds[name], self.peaks[name] = seconds, peak
        self.note(f"{name}: done before")

    def note(self, line: str) -> None:
        """Shows a message between the stages."""
        write_line(self._out, line)
