"""Token embeddings of documents for re-ranking, computed by the re-ranker's first layers and stored in few bits."""

from glow.index.token_embeddings.component import TOKEN_EMBEDDINGS, StatesJob
from glow.index.token_embeddings.store import (
    LEAST,
    STATES_FILES,
    STATES_FOLDER,
    STATES_HEADER,
    CodedStates,
    StateBits,
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
    "StateBits",
    "StatesHeader",
    "StatesJob",
    "TokenEmbeddingStore",
    "TokenEmbeddingsWriter",
    "code_bytes",
    "decode_states",
    "encode_states",
]
