"""Random keys in files next to a log, which all processes of a service share."""

import fcntl
import os
import secrets
from pathlib import Path

__all__ = ["shared_key"]

KEY_BYTES = 32


def shared_key(log: Path, suffix: str) -> bytes:
    """Reads the key in a file next to a log; makes it if it is missing or too short.

    Concurrent processes get the same key, because a lock serializes them. The lock is a separate file, because NFS cannot
    lock folders.

    Args:
        log: the log.
        suffix: suffix of the key's file, after the name of the log.

    Returns:
        The key, at least 32 bytes.

    Raises:
        OSError: if it can neither be read nor written.
    """
    path = log.with_name(log.name + suffix)
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    lock = os.open(log.with_name(f".{log.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            key = b""
        return key if len(key) >= KEY_BYTES else _make(path)
    finally:
        os.close(lock)


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
