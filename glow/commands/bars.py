"""How far long work is: a bar on a terminal, plain lines in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

__all__ = ["Advance", "Show", "progress", "shown_progress", "write_line"]

PLAIN_INTERVAL_S = 10.0
Advance = Callable[[int], None]
"""Called with what was done since the last call."""
Show = Callable[[int, int], None]
"""Called with what is done by now, and with all there is."""


@contextmanager
def progress(out: TextIO, name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """Shows one piece of work; yields a function to call with what was done since the last call.

    Args:
        out: where it is shown; a bar where it is a terminal.
        name: for people.
        total: what there is to do; None where it is not known or comes in one piece.
        unit: of the total.
    """
    with _bar(out, name, total) if out.isatty() else _lines(out, name, total, unit) as advance:
        yield advance


@contextmanager
def shown_progress(out: TextIO) -> Iterator[Callable[[str], Show]]:
    """Gives a function that shows a piece of work by its name, for work that tells how much there is while it runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(file=out), transient=True, disable=not out.isatty()
    ) as bars:

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


@contextmanager
def _bar(out: TextIO, name: str, total: int | None) -> Iterator[Advance]:
    columns = (TextColumn("{task.description:<8}"), BarColumn(), TaskProgressColumn(show_speed=True))
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=out)) as shown:
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
    """A line that is seen at once, also where a log is buffered."""
    out.write(line + "\n")
    out.flush()
