"""The end of a log file, without reading all of it."""

import mmap
from pathlib import Path

from glow.ingest.records import Header, find_headers

__all__ = ["last_header", "latest_time"]

HEADER_BYTES = 80
"""Upper bound of a header's length; a line may have megabytes."""


def last_header(path: Path) -> Header | None:
    """Header of the last complete line that has a readable one; None if there is none, or no file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = data.rfind(b"\n")
            while end > 0:
                start = data.rfind(b"\n", 0, end) + 1
                if headers := find_headers(data[start : min(start + HEADER_BYTES, end)]):
                    return headers[0]
                end = start - 1
    except (FileNotFoundError, ValueError):  # mmap refuses an empty file
        pass
    return None


def latest_time(folder: Path) -> int:
    """When the last operation of any file was accepted; 0 if there is none.

    Args:
        folder: of the files.
    """
    if not folder.is_dir():
        return 0
    return max((header.at for path in folder.glob("*.log") if (header := last_header(path))), default=0)
