"""Term representations of documents: what a re-ranker's layers apart made of every token, precomputed and in few bits."""

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
from glow.index.token_embeddings.format import STATES_FILES, StatesHeader
from glow.index.token_embeddings.store import TokenEmbeddingStore, TokenEmbeddingsWriter

__all__ = [
    "LEAST",
    "STATES_FILES",
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
