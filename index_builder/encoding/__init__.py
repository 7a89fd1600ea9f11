"""Encodes documents to vectors and component records, in shards by threads, processes or Ray, or a few at once."""

from glow_index_builder.encoding.encode import ShardJob
from glow_index_builder.encoding.few_texts import encode_texts, no_texts
from glow_index_builder.encoding.runners import make_runner, make_spread, require_runner
from glow_index_builder.encoding.schedule import EncodedShards, encode_shards
from glow_index_builder.encoding.shards import plan_shards
from glow_index_builder.encoding.text_encoder import TextEncoder, batch_tokens, encode_jobs

__all__ = [
    "EncodedShards", "ShardJob", "TextEncoder", "batch_tokens", "encode_jobs", "encode_shards", "encode_texts", "make_runner",
    "make_spread", "no_texts", "plan_shards", "require_runner",
]  # fmt: skip
