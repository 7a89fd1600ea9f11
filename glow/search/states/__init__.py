"""Term representations of documents: what a re-ranker's layers apart made of every token, precomputed and in few bits."""

from glow.search.states.codes import CodedStates, StateBits, code_bytes, decode_states, encode_states
from glow.search.states.format import STATES_FILES, STATES_FOLDER, STATES_HEADER, StatesHeader
from glow.search.states.store import StatesWriter, TermStates, merge_states, write_states

__all__ = [
    "STATES_FILES", "STATES_FOLDER", "STATES_HEADER", "CodedStates", "StateBits", "StatesHeader", "StatesWriter", "TermStates",
    "code_bytes", "decode_states", "encode_states", "merge_states", "write_states",
]  # fmt: skip
