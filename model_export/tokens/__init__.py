"""Tokens for late interaction: the towers' output, and the projection that makes it small."""

from glow_model_export.tokens.graph import (
    TOKEN_UNIT,
    Texts,
    add_tokens,
    last_states,
    read_projection,
    write_tokens,
)
from glow_model_export.tokens.projection import TOKEN_SIZE, TokenProjection, fit_projection

__all__ = [
    "TOKEN_SIZE", "TOKEN_UNIT", "Texts", "TokenProjection", "add_tokens", "fit_projection", "last_states", "read_projection",
    "write_tokens",
]  # fmt: skip
