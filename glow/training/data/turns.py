"""Turns of processes: of several that start together, one makes what all of them need, and the others find it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glow.errors import InputError

__all__ = ["one_at_a_time"]


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Lets one process in at a time, by a lock on a file, which stays behind empty.

    A barrier of the process group would not do: it gives up after some minutes, and there is no group yet while data
    are prepared. The kernel frees the lock of a process that dies.

    Args:
        lock: the file; its folder is made too.

    Raises:
        InputError: if nothing can be written there.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("ab")
    except OSError as error:
        raise InputError(f"cannot write {lock}: {error.strerror}; give a folder that can") from error
    with file:  # closing it gives the lock back
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
