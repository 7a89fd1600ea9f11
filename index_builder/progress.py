"""Stages of a build as people see them: a bar on a terminal, plain lines elsewhere; and their times."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from glow_index_builder.memory import peak_memory_bytes, release_memory, reset_peak_memory

__all__ = ["Stages"]

PLAIN_INTERVAL_S = 10.0
Advance = Callable[[int], None]


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
        shown = self._bar(name, total) if self._out.isatty() else self._lines(name, total, unit)
        with shown as advance:
            yield advance
        self.seconds[name] = time.perf_counter() - start
        self.peaks[name] = peak_memory_bytes()

    def done_before(self, name: str, seconds: float, peak: int) -> None:
        """Tells of a stage that an earlier run has done, and what it took there."""
        self.seconds[name], self.peaks[name] = seconds, peak
        self.note(f"{name}: done before")

    def note(self, line: str) -> None:
        """Tells people something beside the stages."""
        self._write(line)

    @contextmanager
    def _bar(self, name: str, total: int | None) -> Iterator[Advance]:
        columns = (TextColumn("{task.description:<8}"), BarColumn(), TaskProgressColumn(show_speed=True))
        with Progress(*columns, TimeRemainingColumn(), console=Console(file=self._out)) as progress:
            task = progress.add_task(name, total=total)
            yield lambda amount: progress.advance(task, amount)
            done = progress.tasks[0].completed
            progress.update(task, total=max(done, 1), completed=max(done, 1))

    @contextmanager
    def _lines(self, name: str, total: int | None, unit: str) -> Iterator[Advance]:
        start = shown = time.monotonic()
        done = 0

        def advance(amount: int) -> None:
            nonlocal done, shown
            done += amount
            if time.monotonic() - shown >= PLAIN_INTERVAL_S:
                shown = time.monotonic()
                self._write(f"{name}: {done:,} of {f'{total:,}' if total else '?'} {unit}")

        yield advance
        took = time.monotonic() - start
        self._write(f"{name}: {f'{done:,} {unit} in ' if done else ''}{took:.1f} s")

    def _write(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()
