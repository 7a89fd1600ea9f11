"""Documents to vectors, in shards, by threads, processes or Ray."""

from glow_index_builder.encoding.encode import EncodeJob, batch_tokens
from glow_index_builder.encoding.learned import LearnedEncoder, LearnedJob, make_word_side, require_learned
from glow_index_builder.encoding.passages import cut_documents, describe_passages, open_cutter
from glow_index_builder.encoding.runners import make_insert, make_runner, require_runner
from glow_index_builder.encoding.schedule import Encoded, encode_shards
from glow_index_builder.encoding.shards import plan_shards
from glow_index_builder.encoding.states import StatesEncoder, StatesJob, states_header

__all__ = [
    "EncodeJob", "Encoded", "LearnedEncoder", "LearnedJob", "StatesEncoder", "StatesJob", "batch_tokens", "cut_documents",
    "describe_passages", "encode_shards", "make_insert", "make_runner", "make_word_side", "open_cutter", "plan_shards", "require_learned",
    "require_runner", "states_header",
]  # fmt: skip
