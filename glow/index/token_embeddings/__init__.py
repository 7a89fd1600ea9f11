"""Term representations of documents: what a re-ranker's layers apart made of every token, precomputed and in few bits."""

from glow.index.token_embeddings.codes import (
    LEAST,
    CodedStates,
    StateBits,
    code_bytes,
    decode_states,
    encode_states,
)
from glow.index.token_embeddings.format import STATES_FILES, STATES_FOLDER, STATES_HEADER, StatesHeader
from glow.index.token_embeddings.store import StatesWriter, TermStates, merge_states, write_states

__all__ = [
    "LEAST",
    "STATES_FILES",
    "STATES_FOLDER",
    "STATES_HEADER",
    "CodedStates",
    "StateBits",
    "StatesHeader",
    "StatesWriter",
    "TermStates",
    "code_bytes",
    "decode_states",
    "encode_states",
    "merge_states",
    "write_states",
]
