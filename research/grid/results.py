"""The results file of a grid: one JSON line per finished run, appended by one or several processes."""

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glow.errors import InputError

__all__ = ["Key", "append", "finished", "same_data"]

Key = tuple[int, str]
"""Seed, and a digest of all other inputs that decide the result, except its data."""
FIELDS = frozenset({"variant", "seed", "config", "data", "measures", "term_stats", "curve", "steps"})


def finished(results: Path) -> dict[Key, dict[str, Any]]:
    """Lines of a results file by their run's key; the last one with a key counts. Empty without a file.

    An incomplete last line, of a killed or writing process, is left out.

    Raises:
        InputError: if a complete line is not a result.
    """
    if not results.exists():
        return {}
    found: dict[Key, dict[str, Any]] = {}
    *lines, _ = results.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{results.name} line {number} is not JSON ({error}); remove it") from error
        missing = FIELDS - row.keys() if isinstance(row, dict) else FIELDS
        if missing:
            raise InputError(
                f"{results.name} line {number} is not a result of a grid: it lacks {', '.join(sorted(missing))}"
            )
        found[row["seed"], row["config"]] = row
    return found


def same_data(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two results' `data` agree; for results without file hashes, names decide."""
    left_out = set() if "files" in first and "files" in second else {"files"}
    one, other = ({k: v for k, v in data.items() if k not in left_out} for data in (first, second))
    return one == other


def append(results: Path, row: Mapping[str, Any]) -> None:
    """Appends a line; replaces an incomplete line of a killed process.

    The file is locked meanwhile, so no other process is writing an incomplete line.
    """
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a+b") as file:  # closing it releases the lock
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(row).encode() + b"\n")
