"""A lock for processes that start together: one creates a shared file, and the others find it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glow.errors import InputError

__all__ = ["one_at_a_time"]


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Admits one process at a time by a lock on a file, which stays as an empty file.

    A barrier of the process group is not suitable: it times out after some minutes, and there is no group yet during
    data preparation. The kernel frees the lock of a process that dies.

    Args:
        lock: the file; its directory is created, too.

    Raises:
        InputError: if the file cannot be written.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("ab")
    except OSError as error:
        raise InputError(f"cannot write {lock}: {error.strerror}; give a writable directory") from error
    with file:  # closing it releases the lock
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
