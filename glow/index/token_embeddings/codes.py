"""Codes of token embeddings: 16, 8 or 4 bits per number, with a scale for each token below 16.

Source: PreTTR section 4.2 stores 16 bits; 8 and 4 are GLOW's. The numbers are outputs of a GELU, which has a minimum, and
codes count from there: x ≈ LEAST + code · scale.

    t   tokens      e   numbers per token      b   bytes of a token's codes
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST", "CodedStates", "StateBits", "code_bytes", "decode_states", "encode_states"]

StateBits = Literal[16, 8, 4]
LEAST = np.float32(-0.17)
"""GELU's minimum, -0.16997, rounded down."""


def code_bytes(size: int, bits: StateBits) -> int:
    """b: bytes of a token's codes, without its scale of 2 bytes; two 4-bit codes share a byte."""
    return (size * bits + 7) // 8


def encode_states(
    states: NDArray[np.float32], bits: StateBits
) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    """Codes and scales of tokens.

    Args:
        states: float32 [t, e], finite; below 16 bits >= LEAST.
        bits: per number.

    Returns:
        uint8 [t, b], and float16 [t], >= 0; [0] with 16 bits, which need none. The decoded number is within half a scale of the
        original (16 bits: within a 2,048th of it).

    Raises:
        ValueError: if a number is not finite, too large for 16 bits, or, with fewer bits, below LEAST.
    """
    if not np.isfinite(states).all() or (np.abs(states) > np.finfo(np.float16).max).any():
        raise ValueError("term representations must be finite and fit into 16 bits")
    if bits != 16 and (states < LEAST).any():
        raise ValueError(
            f"term representations in {bits} bits must be at least {LEAST:.2f}, as a compressor's GELU leaves them"
        )
    if bits == 16:
        return np.ascontiguousarray(states, np.float16).view(np.uint8), np.empty(0, np.float16)
    levels = (1 << bits) - 1
    exact = (states.max(1, initial=float(LEAST)) - LEAST) / levels
    # Rounded up, so that the largest number also has a code.
    scales = np.nextafter(exact.astype(np.float16), np.float16(np.inf))
    codes = np.rint((states - LEAST) / scales[:, None].astype(np.float32)).clip(0, levels).astype(np.uint8)
    if bits == 8:
        return codes, scales
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return even[:, 0::2] | (even[:, 1::2] << 4), scales


def decode_states(
    codes: NDArray[np.uint8], scales: NDArray[np.float16], size: int, bits: StateBits
) -> NDArray[np.float32]:
    """Decoded numbers, float32 [t, e]; arguments as returned by `encode_states`, `size` is e."""
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


class CodedStates(NamedTuple):
    """Documents in their stored form.

    Attributes:
        lengths: number of tokens of each, int64 [B].
        codes: uint8 [t, b], one document after another.
        scales: float16 [t]; [0] with 16 bits.
    """

    lengths: NDArray[np.int64]
    codes: NDArray[np.uint8]
    scales: NDArray[np.float16]

    @classmethod
    def of(cls, documents: Sequence[NDArray[np.float32]], bits: StateBits) -> "CodedStates":
        """Codes of documents' token embeddings, float32 [L, e] each, at least one document; raises as `encode_states`."""
        lengths = np.array([len(states) for states in documents], np.int64)
        return cls(lengths, *encode_states(np.concatenate(documents), bits))

    def states(self, size: int, bits: StateBits) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Decoded numbers: float32 [B, L, e], 0 on padding at the end, and mask int64 [B, L], 1 for tokens."""
        mask = np.arange(int(self.lengths.max())) < self.lengths[:, None]
        states = np.zeros((*mask.shape, size), np.float32)
        states[mask] = decode_states(self.codes, self.scales, size, bits)
        return states, mask.astype(np.int64)
