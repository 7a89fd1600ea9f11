"""What a query tower makes of a text, as bytes that a cache can keep."""

import numpy as np

from glow.runtime import EncodedText, Encoder

__all__ = ["encoded_of", "to_bytes"]

NORM_TOLERANCE = 1e-2


def to_bytes(encoded: EncodedText) -> bytes:
    """The vector's numbers, and behind them those of the tokens."""
    tokens = b"" if encoded.tokens is None else encoded.tokens.tobytes()
    return encoded.vector.tobytes() + tokens


def encoded_of(value: bytes | None, encoder: Encoder, length: int) -> EncodedText | None:
    """What a cache gave for a text.

    Args:
        value: as `to_bytes` made it, or whatever else a cache holds.
        encoder: the tower.
        length: tokens of the text.

    Returns:
        None if it is of another size, or its vector or a token is not of length 1, as every one is.
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
