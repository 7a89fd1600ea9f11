"""Late interaction: binary embeddings of every document token, and their comparison with a query's tokens."""

from glow.index.late_interaction.codes import CodedTokens, code_texts, encode_tokens
from glow.index.late_interaction.component import LATE_INTERACTION
from glow.index.late_interaction.encode import LateJob
from glow.index.late_interaction.fields import tokens_of_field
from glow.index.late_interaction.format import LATE_FILES, LATE_FOLDER, LATE_HEADER, LateHeader
from glow.index.late_interaction.pooling import BUDGET, nearest, pool, stored_tokens
from glow.index.late_interaction.scoring import (
    CHUNK,
    MOST_NUMBERS,
    Answers,
    best_in,
    best_tokens,
    max_sim,
)
from glow.index.late_interaction.store import LateTokens, LateWriter
from glow.index.late_interaction.view import LateView

__all__ = [
    "BUDGET",
    "CHUNK",
    "LATE_FILES",
    "LATE_FOLDER",
    "LATE_HEADER",
    "LATE_INTERACTION",
    "MOST_NUMBERS",
    "Answers",
    "CodedTokens",
    "LateHeader",
    "LateJob",
    "LateTokens",
    "LateView",
    "LateWriter",
    "best_in",
    "best_tokens",
    "code_texts",
    "encode_tokens",
    "max_sim",
    "nearest",
    "pool",
    "stored_tokens",
    "tokens_of_field",
]
