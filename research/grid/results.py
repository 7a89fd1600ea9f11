"""The results file of a grid: one JSON line a finished run, appended by one process or several."""

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glow.errors import InputError

__all__ = ["Key", "append", "finished", "same_data"]

Key = tuple[int, str]
"""Seed, and the digest of everything else that decides the result but its data."""
FIELDS = frozenset({"variant", "seed", "config", "data", "measures", "term_stats", "curve", "steps"})


def finished(results: Path) -> dict[Key, dict[str, Any]]:
    """Lines of a results file by the key of their run, the last of equal keys; none where there is no file.

    What follows the last newline is left out: a process was killed, or is writing it now.

    Raises:
        InputError: if a whole line is no result.
    """
    if not results.exists():
        return {}
    found: dict[Key, dict[str, Any]] = {}
    *lines, _ = results.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{results.name} line {number} is no JSON ({error}); remove the line") from error
        missing = FIELDS - row.keys() if isinstance(row, dict) else FIELDS
        if missing:
            raise InputError(
                f"{results.name} line {number} is no result of a grid: it lacks {', '.join(sorted(missing))}"
            )
        found[row["seed"], row["config"]] = row
    return found


def same_data(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two results' `data` agree; one of before files were hashed agrees by its names."""
    left_out = set() if "files" in first and "files" in second else {"files"}
    one, other = ({k: v for k, v in data.items() if k not in left_out} for data in (first, second))
    return one == other


def append(results: Path, row: Mapping[str, Any]) -> None:
    """Adds a line, in place of the half line that a killed process may have left.

    The file is locked meanwhile: what has no newline then is nobody's work in progress.
    """
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a+b") as file:  # closing it gives the lock back
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(row).encode() + b"\n")
