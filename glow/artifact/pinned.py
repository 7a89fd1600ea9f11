"""The file `PINNED` of an index root: versions that must not be removed, one per line, permanently or until a time.

20261121T093000.123456Z-7f3c
20261122T101500.000000Z-02ab until 2026-11-29T10:15:00+00:00
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from glow.errors import FormatError

__all__ = ["PINNED_FILE", "VERSION_NAME", "pin_lines", "read_pinned"]

PINNED_FILE = "PINNED"
"""Pinned versions, one per line, each without limit or until a time."""
VERSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Valid names of version folders."""
UNTIL = " until "


def read_pinned(root: Path, now: datetime | None = None) -> dict[str, datetime | None]:
    """The pinned versions, and until when; None is permanently. Expired pins are left out.

    Args:
        root: the index root.
        now: a time with time zone; None: the current time.

    Raises:
        FormatError: if the file cannot be read or is invalid; then nothing may be removed.
    """
    try:
        lines = (root / PINNED_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{PINNED_FILE} in {root} cannot be read ({error}); correct it: one version per line"
        ) from error
    pinned: dict[str, datetime | None] = {}
    for line in filter(None, map(str.strip, lines)):
        name, _, time = line.partition(UNTIL)
        try:
            until = datetime.fromisoformat(time) if time else None
        except ValueError:
            until = datetime.min  # refused below, like a time without time zone
        if not VERSION_NAME.fullmatch(name) or (until is not None and until.tzinfo is None):
            raise FormatError(
                f"{PINNED_FILE} in {root} has the line {line!r:.200}, expected one version per line, alone or with "
                f"'{UNTIL.strip()}' and a time such as 2026-11-29T10:15:00+00:00; correct it"
            )
        if until is None or until > (now or datetime.now(UTC)):
            pinned[name] = until
    return dict(sorted(pinned.items()))


def pin_lines(pinned: Mapping[str, datetime | None]) -> list[str]:
    """Lines of a `PINNED` file."""
    return [
        name if until is None else f"{name}{UNTIL}{until.astimezone(UTC).isoformat(timespec='seconds')}"
        for name, until in sorted(pinned.items())
    ]
