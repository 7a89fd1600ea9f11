"""Append-only files of lines: after a full disk or a killed process, at most the last line is lost."""

import os

__all__ = ["append_whole", "end_last_line"]


def append_whole(descriptor: int, content: bytes) -> None:
    """Appends all of the content or nothing: half a line would spoil the next one too.

    The caller must keep other writers away from the file.

    Args:
        descriptor: opened for appending.
        content: whole lines.

    Raises:
        OSError: if the disk is full or fails; the file then has its former size.
    """
    size = os.fstat(descriptor).st_size
    written = 0
    try:
        while written < len(content):
            written += os.write(descriptor, content[written:] if written else content)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def end_last_line(descriptor: int) -> None:
    """Adds the line feed that a crash left out of the last line, so that the next line is separate.

    Args:
        descriptor: opened for reading and appending.

    Raises:
        OSError: as `append_whole`.
    """
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        append_whole(descriptor, b"\n")
