"""Files of lines that only grow: one way to append to them, so that a full disk or a killed process costs at most the last line."""

import os

__all__ = ["append_whole", "end_last_line"]


def append_whole(descriptor: int, content: bytes) -> None:
    """Appends all of it, or nothing: half a line would spoil the next one too.

    The caller keeps other writers of the file out.

    Args:
        descriptor: opened for appending.
        content: whole lines.

    Raises:
        OSError: if the disk is full or fails; the file has the size that it had.
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
    """Ends a last line that a crash left without its line feed, so that the next line is not joined to it.

    Args:
        descriptor: opened for reading and appending.

    Raises:
        OSError: as `append_whole`.
    """
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        append_whole(descriptor, b"\n")
