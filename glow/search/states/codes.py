"""Codes of term representations: 16, 8 or 4 bits a number, with a scale for each token below 16.

Source: PreTTR section 4.2 stores 16 bits; 8 and 4 are ours. What is stored comes out of a GELU, which has a least value, so
codes count from there: x ≈ LEAST + code · scale.

    t   tokens      e   numbers of a token      b   bytes of a token's codes
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST", "StateBits", "code_bytes", "decode_states", "encode_states"]

StateBits = Literal[16, 8, 4]
LEAST = np.float32(-0.17)
"""GELU's least value, -0.16997, rounded down."""


def code_bytes(size: int, bits: StateBits) -> int:
    """b: bytes of a token's codes, without its scale of 2 bytes; of 4 bits two share a byte."""
    return (size * bits + 7) // 8


def encode_states(
    states: NDArray[np.float32], bits: StateBits
) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    """Codes and scales of tokens.

    Args:
        states: float32 [t, e], finite, >= LEAST.
        bits: of a number.

    Returns:
        uint8 [t, b], and float16 [t], >= 0; [0] with 16 bits, which need none. A number comes back within half a scale of what it
        was (16 bits: within a 2,048th of itself).

    Raises:
        ValueError: if a number is not finite, below LEAST, or too large for 16 bits.
    """
    if not np.isfinite(states).all() or (states < LEAST).any() or (states > np.finfo(np.float16).max).any():
        raise ValueError(f"term representations must be finite and at least {LEAST}, as GELU leaves them")
    if bits == 16:
        return np.ascontiguousarray(states, np.float16).view(np.uint8), np.empty(0, np.float16)
    levels = (1 << bits) - 1
    exact = (states.max(1, initial=float(LEAST)) - LEAST) / levels
    # Rounded up, so that the largest number still has a code.
    scales = np.nextafter(exact.astype(np.float16), np.float16(np.inf))
    codes = np.rint((states - LEAST) / scales[:, None].astype(np.float32)).clip(0, levels).astype(np.uint8)
    if bits == 8:
        return codes, scales
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return even[:, 0::2] | (even[:, 1::2] << 4), scales


def decode_states(
    codes: NDArray[np.uint8], scales: NDArray[np.float16], size: int, bits: StateBits
) -> NDArray[np.float32]:
    """Codes back to numbers, float32 [t, e]; arguments as `encode_states` returns them, `size` is e."""
    if bits == 16:
        halves: NDArray[np.float32] = np.ascontiguousarray(codes).view(np.float16).astype(np.float32)
        return halves
    if bits == 4:
        wide = np.empty((len(codes), 2 * codes.shape[1]), np.uint8)
        wide[:, 0::2], wide[:, 1::2] = codes & 15, codes >> 4
        codes = wide[:, :size]
    found: NDArray[np.float32] = codes.astype(np.float32)
    found *= scales[:, None].astype(np.float32)
    found += LEAST
    return found
