"""Random keys in files beside a log, which all processes of a service share."""

import fcntl
import os
import secrets
from pathlib import Path

__all__ = ["shared_key"]

KEY_BYTES = 32


def shared_key(log: Path, suffix: str) -> bytes:
    """The key in a file beside a log; made if there is none, and replaced if the file is shorter than a key.

    Processes that ask at the same time get the same key: a lock lets one after the other look. It is a file of its own, because
    NFS locks no folder.

    Args:
        log: the log.
        suffix: what the name of the key's file has behind the log's.

    Returns:
        32 bytes, or as many as the file has if there are more.

    Raises:
        OSError: if it can neither be read nor made.
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
