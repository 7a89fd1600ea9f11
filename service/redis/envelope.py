"""The envelope of a value in Redis, which reveals values that are damaged, truncated, or written by others.

    4 bytes  magic: "GLW" and the version of this layout
    16 bytes digest of key and value
    rest     the value

The digest contains no secret: it detects accidents, but not an attacker who can write to the Redis.
"""

from hashlib import blake2b

__all__ = ["ENVELOPE_BYTES", "open_envelope", "seal"]

_MAGIC = b"GLW\x01"
_DIGEST_BYTES = 16
ENVELOPE_BYTES = len(_MAGIC) + _DIGEST_BYTES


def seal(key: bytes, value: bytes) -> bytes:
    """The bytes to store for a value under a key."""
    return _MAGIC + _digest(key, value) + value


def open_envelope(key: bytes, stored: bytes) -> bytes | None:
    """The value that was sealed under this key, or None if the bytes are not a valid envelope of it."""
    value = stored[ENVELOPE_BYTES:]
    return value if stored[:ENVELOPE_BYTES] == _MAGIC + _digest(key, value) else None


def _digest(key: bytes, value: bytes) -> bytes:
    # The key's length comes first, so that different pairs of key and value give different input.
    state = blake2b(b"%d:" % len(key), digest_size=_DIGEST_BYTES)
    state.update(key)
    state.update(value)
    return state.digest()
