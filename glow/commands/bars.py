"""Progress of long work: a bar on a terminal, lines in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Advance", "Show", "progress", "shown_progress", "write_line"]

PLAIN_INTERVAL_S = 10.0
Advance = Callable[[int], None]
"""Called with the amount done since the last call."""
Show = Callable[[int, int], None]
"""Called with the amount done so far, and the total."""


@contextmanager
def progress(out: TextIO, name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """Shows the progress of a task; yields a function to call with the amount done since the last call.

    Args:
        out: output stream; a terminal shows a bar.
        name: name to show.
        total: total amount; None if it is unknown.
        unit: unit of the amount.
    """
    with _bar(out, name, total) if out.isatty() else _lines(out, name, total, unit) as advance:
        yield advance


@contextmanager
def shown_progress(out: TextIO) -> Iterator[Callable[[str], Show]]:
    """Yields a function that adds a named task, for tasks that learn their total while they run."""
    with _bars(out, "{task.description}", shows_speed=False, is_transient=True) as bars:

        def show(name: str) -> Show:
            task = bars.add_task(name, total=None)
            last_line = time.monotonic()

            def tell(done: int, total: int) -> None:
                nonlocal last_line
                bars.update(task, completed=done, total=total)
                if not out.isatty() and time.monotonic() - last_line >= PLAIN_INTERVAL_S:
                    last_line = time.monotonic()
                    write_line(out, f"{name}: {done:,} of {total:,}")

            return tell

        yield show


def _bars(out: TextIO, name: str, *, shows_speed: bool, is_transient: bool) -> "Progress":
    # rich takes 50 ms to import, which commands without bars save.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(name), BarColumn(), TaskProgressColumn(show_speed=shows_speed), TimeRemainingColumn(),
    )  # fmt: skip
    return Progress(*columns, console=Console(file=out), transient=is_transient, disable=not out.isatty())


@contextmanager
def _bar(out: TextIO, name: str, total: int | None) -> Iterator[Advance]:
    with _bars(out, "{task.description:<8}", shows_speed=True, is_transient=False) as shown:
        task = shown.add_task(name, total=total)
        yield lambda amount: shown.advance(task, amount)
        done = shown.tasks[0].completed
        shown.update(task, total=max(done, 1), completed=max(done, 1))


@contextmanager
def _lines(out: TextIO, name: str, total: int | None, unit: str) -> Iterator[Advance]:
    start = shown = time.monotonic()
    done = 0

    def advance(amount: int) -> None:
        nonlocal done, shown
        done += amount
        if time.monotonic() - shown >= PLAIN_INTERVAL_S:
            shown = time.monotonic()
            write_line(out, f"{name}: {done:,} of {f'{total:,}' if total else '?'} {unit}")

    yield advance
    took = time.monotonic() - start
    write_line(out, f"{name}: {f'{done:,} {unit} in ' if done else ''}{took:.1f} s")


def write_line(out: TextIO, line: str) -> None:
    """Writes a line and flushes it."""
    out.write(line + "\n")
    out.flush()
