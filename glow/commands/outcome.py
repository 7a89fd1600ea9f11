"""How every command ends: one line per error, an exit code for its kind, and a report if `--json` is given.

Exit codes are those of the error types (`GlowError.exit_code`, docs/reference/errors.md): 0 done; 1 a bug; 2 wrong options or input;
3 a model or index is missing, damaged or does not fit; 4 the work failed; 5 a device or an optional package is not there;
6 the gate refused the version; 130 and 143 interrupted.
"""

import json as json_text
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import typer

from glow.errors import ConfigError, GateError, GlowError, InputError

__all__ = ["STDOUT", "all_cores", "fail", "reporting", "say", "say_error", "write_report", "write_text"]

STDOUT = Path("-")
SIGNALLED = 128
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tabs and line feeds, marks of text direction, and lone surrogates."""


@contextmanager
def reporting(json: Path | None = None) -> Iterator[None]:
    """Ends a failed command with one line on stderr and its exit code.

    Args:
        json: file that also receives the report of a failure; None: none.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    before = _handle(signal.SIGTERM, stop)
    try:
        _require_writable(json)
        yield
    except KeyboardInterrupt:
        fail("interrupted; nothing unfinished was left behind", SIGNALLED + (received or [signal.SIGINT])[0])
    except GlowError as error:
        if json is not None:
            with suppress(GlowError, OSError):  # the line below is still printed
                write_report(json, _failure(error))
        fail(f"error ({error.code}): {error}", error.exit_code)
    finally:
        _handle(signal.SIGTERM, before)


def _handle(number: int, handler: Any) -> Any:
    """Sets a signal's handler if this is the main thread; tests run commands in other threads."""
    try:
        return signal.signal(number, handler)
    except ValueError:
        return None


def _failure(error: GlowError) -> dict[str, Any]:
    figures = error.figures if isinstance(error, GateError) else {}
    return {"status": "failed", "code": error.code, "error": str(error), **figures}


def _require_writable(path: Path | None) -> None:
    """Checks the report path before the work."""
    if path and path != STDOUT and not path.parent.is_dir():
        raise ConfigError(f"cannot write --json {path}: there is no folder {path.parent}")


def fail(message: str, code: int) -> NoReturn:
    """Prints an error on one line of stderr, and exits."""
    say_error(message)
    raise typer.Exit(code)


def say_error(message: str) -> None:
    """Prints a message on one line of stderr."""
    sys.stderr.write(f"glow: {shown(' '.join(message.split()))}\n")


def say(message: str) -> None:
    """Prints a result on stdout."""
    sys.stdout.write(shown(message) + "\n")


def shown(text: str) -> str:
    """Escapes control characters, which file names or keys may contain and a terminal would obey.

    The escapes are JSON's, so that a JSON report stays valid.
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_report(path: Path | None, values: Mapping[str, Any]) -> None:
    """Writes a report as indented JSON, if one was requested.

    Args:
        path: the file; `-` is standard output; None: do not write.
        values: JSON values.

    Raises:
        InputError: if the file cannot be written.
    """
    if path is not None:
        write_text(path, json_text.dumps(values, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text to a file; `-` is standard output.

    Raises:
        InputError: if the file cannot be written.
    """
    if path == STDOUT:
        sys.stdout.write(shown(text))
        return
    try:
        # File names that are not UTF-8 cause lone surrogates; the escapes are valid JSON.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def all_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
