"""Random keys in files, which all processes of a service share."""

import fcntl
import os
import secrets
from pathlib import Path

__all__ = ["KEY_BYTES", "shared_key"]

KEY_BYTES = 32


def shared_key(path: Path) -> bytes:
    """The key that a file holds; made if there is none, and replaced if the file is shorter than a key.

    Processes that ask at the same time get the same key: a lock of the folder lets one after the other look.

    Args:
        path: the file, readable by its owner alone.

    Returns:
        32 bytes, or as many as the file has if there are more.

    Raises:
        OSError: if it can neither be read nor made.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            key = b""
        return key if len(key) >= KEY_BYTES else _make(path)
    finally:
        os.close(folder)


def _make(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_BYTES)
    partial = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, key)
        os.fsync(descriptor)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return key
