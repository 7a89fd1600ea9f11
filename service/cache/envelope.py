"""What stands around a value in Redis, by which a value that is damaged, cut short or another's is known.

    4 bytes  magic: "GLW" and the version of this layout
    16 bytes digest of key and value
    rest     the value

The digest has no secret in it: it finds accidents, and does not stop someone who may write to the Redis.
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
    """The value that was sealed under this very key, or None where these bytes are not that."""
    value = stored[ENVELOPE_BYTES:]
    return value if stored[:ENVELOPE_BYTES] == _MAGIC + _digest(key, value) else None


def _digest(key: bytes, value: bytes) -> bytes:
    # The key's length comes first, so that no byte can move from the one to the other.
    state = blake2b(b"%d:" % len(key), digest_size=_DIGEST_BYTES)
    state.update(key)
    state.update(value)
    return state.digest()
