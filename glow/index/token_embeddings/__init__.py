"""Token embeddings of documents for re-ranking, computed by the re-ranker's first layers and stored in 4 bits."""

from glow.index.token_embeddings.component import TOKEN_EMBEDDINGS, StatesJob
from glow.index.token_embeddings.store import (
    LEAST,
    STATES_FILES,
    STATES_FOLDER,
    STATES_HEADER,
    CodedStates,
    StatesHeader,
    TokenEmbeddingStore,
    TokenEmbeddingsWriter,
    code_bytes,
    decode_states,
    encode_states,
)

__all__ = [
    "LEAST",
    "STATES_FILES",
    "STATES_FOLDER",
    "STATES_HEADER",
    "TOKEN_EMBEDDINGS",
    "CodedStates",
    "StatesHeader",
    "StatesJob",
    "TokenEmbeddingStore",
    "TokenEmbeddingsWriter",
    "code_bytes",
    "decode_states",
    "encode_states",
]
