"""How every command ends: its words, its report, its exit code, and the options that commands share.

Exit codes: 0 done; 1 a bug; 2 wrong options or input; 3 a model or index is missing, damaged or does not fit;
4 the build failed; 5 the device or an optional package is not there; 6 the gate refused the version; 130 and 143
interrupted.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from glow.errors import (
    ArtifactError,
    BuildError,
    BusyError,
    DependencyError,
    DeviceError,
    GateError,
    GlowError,
    InputError,
    ReadOnlyError,
)
from glow_index_builder.building import failure_report, require_writable, write_json

__all__ = ["EXIT_CODES", "Json", "Output", "Version", "all_cores", "fail", "reporting", "say"]

EXIT_CODES: tuple[tuple[type[GlowError], int], ...] = (
    (InputError, 2),
    (ArtifactError, 3),
    (BuildError, 4),
    (BusyError, 4),
    (ReadOnlyError, 4),
    (DeviceError, 5),
    (DependencyError, 5),
    (GateError, 6),
)
"""The first kind that an error is of decides."""
SIGNALLED = 128
EXIT_INTERRUPTED = SIGNALLED + signal.SIGINT

Output = Annotated[Path, typer.Option("--output", help="Index root: the folder of all versions.")]
Version = Annotated[str | None, typer.Argument(help="Version name.", show_default=False)]
Json = Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")]


@contextmanager
def reporting(json: Path | None) -> Iterator[None]:
    """Ends a command that cannot do its work with one line on stderr and the exit code for it.

    Args:
        json: where the report of a failure goes, too; None: nowhere.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        require_writable(json)
        yield
    except KeyboardInterrupt:
        fail("interrupted; no unfinished version was left behind", _signal_code(received))
    except GlowError as error:
        if json:
            with suppress(OSError):  # the message below still comes
                write_json(json, failure_report(error))
        fail(
            f"error ({error.code}): {error}",
            next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1),
        )
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(message: str, code: int) -> NoReturn:
    """Says on one line of stderr what went wrong, and exits."""
    sys.stderr.write(f"index_builder: {' '.join(message.split())}\n")
    raise typer.Exit(code)


def say(message: str) -> None:
    """Writes what a person asked for to stdout."""
    sys.stdout.write(message + "\n")


def all_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _signal_code(received: list[int]) -> int:
    return SIGNALLED + received[0] if received else EXIT_INTERRUPTED
