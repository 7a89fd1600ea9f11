"""`PINNED` in an index root: the versions that are never removed, one a line."""

import re
from pathlib import Path

from glow.errors import FormatError

__all__ = ["PINNED_FILE", "VERSION_NAME", "read_pinned"]

PINNED_FILE = "PINNED"
VERSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What a version's folder may be called."""


def read_pinned(root: Path) -> list[str]:
    """The pinned versions by name; none without the file.

    Raises:
        FormatError: if the file cannot be read, or holds anything else: nothing may be removed then.
    """
    try:
        lines = (root / PINNED_FILE).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{PINNED_FILE} in {root} cannot be read ({error}); correct it: one version a line"
        ) from error
    if strange := [line for line in lines if not VERSION_NAME.fullmatch(line)]:
        raise FormatError(
            f"{PINNED_FILE} in {root} holds {strange[0]!r}, expected one version a line; correct it"
        )
    return sorted(set(lines))
