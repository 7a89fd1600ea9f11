"""Token vectors for late interaction: a second output of the towers, and the projection that shrinks it."""

from glow_model_export.tokens.graph import (
    TOKEN_UNIT,
    Texts,
    add_tokens,
    last_states,
    read_projection,
    remove_tokens,
    write_tokens,
)
from glow_model_export.tokens.projection import TOKEN_SIZE, TokenProjection, fit_projection

__all__ = [
    "TOKEN_SIZE", "TOKEN_UNIT", "Texts", "TokenProjection", "add_tokens", "fit_projection", "last_states", "read_projection",
    "remove_tokens", "write_tokens",
]  # fmt: skip
