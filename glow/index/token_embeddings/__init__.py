"""Token embeddings of documents for re-ranking, computed by the re-ranker's first layers and stored in few bits."""

from glow.index.token_embeddings.codes import (
    LEAST,
    CodedStates,
    StateBits,
    code_bytes,
    decode_states,
    encode_states,
)
from glow.index.token_embeddings.component import TOKEN_EMBEDDINGS
from glow.index.token_embeddings.encode import StatesJob
from glow.index.token_embeddings.format import STATES_FILES, STATES_FOLDER, STATES_HEADER, StatesHeader
from glow.index.token_embeddings.store import TokenEmbeddingStore, TokenEmbeddingsWriter

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
