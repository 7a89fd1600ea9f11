"""Encodes documents to vectors and component records: in shards by threads or Ray, or a few at once."""

from glow_index_builder.encoding.schedule import (
    EncodedShards,
    encode_shards,
    make_spread,
    require_runner,
    start_encoding,
)
from glow_index_builder.encoding.shards import ShardJob, plan_shards, sample_seconds
from glow_index_builder.encoding.text_encoder import (
    TextEncoder,
    batch_tokens,
    encode_jobs,
    encode_texts,
    no_texts,
)

__all__ = [
    "EncodedShards", "ShardJob", "TextEncoder", "batch_tokens", "encode_jobs", "encode_shards", "encode_texts",
    "make_spread", "no_texts", "plan_shards", "require_runner", "sample_seconds", "start_encoding",
]  # fmt: skip
