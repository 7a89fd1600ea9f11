"""Late interaction: binary embeddings of every document token, and their comparison with a query's tokens."""

from glow.index.late_interaction.component import LATE_INTERACTION, LateJob, LateView
from glow.index.late_interaction.scoring import (
    BUDGET,
    CHUNK,
    MOST_NUMBERS,
    Answers,
    best_in,
    best_tokens,
    max_sim,
    nearest,
    pool,
    stored_tokens,
    tokens_of_field,
)
from glow.index.late_interaction.store import (
    LATE_FILES,
    LATE_FOLDER,
    LATE_HEADER,
    CodedTokens,
    LateHeader,
    LateTokens,
    LateWriter,
    code_texts,
    encode_tokens,
)

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
