"""Converts encoded queries to bytes for the cache, and back."""

import numpy as np

from glow.runtime import EncodedText, Encoder

__all__ = ["encoded_of", "to_bytes"]

NORM_TOLERANCE = 1e-2


def to_bytes(encoded: EncodedText) -> bytes:
    """The vector's numbers, followed by those of the token vectors."""
    tokens = b"" if encoded.tokens is None else encoded.tokens.tobytes()
    return encoded.vector.tobytes() + tokens


def encoded_of(value: bytes | None, encoder: Encoder, length: int) -> EncodedText | None:
    """Decodes a cached value.

    Args:
        value: output of `to_bytes`, or any other bytes from the cache.
        encoder: the query encoder.
        length: number of tokens of the text.

    Returns:
        The encoded text; None if the size is wrong, or a vector is not of length 1.
    """
    width, size = encoder.dimensions, encoder.token_size or 0
    if value is None or len(value) != 4 * (width + length * size):
        return None
    numbers = np.frombuffer(value, np.float32)
    vector, tokens = numbers[:width], numbers[width:].reshape(length, size) if size else None
    lengths = [float(vector @ vector)]
    if tokens is not None:
        lengths += np.einsum("lp,lp->l", tokens, tokens).tolist()
    is_whole = all(abs(each - 1.0) < NORM_TOLERANCE for each in lengths)
    return EncodedText(vector, tokens) if is_whole else None
