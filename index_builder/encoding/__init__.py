"""Encodes documents to vectors and component records: in blocks by threads or Ray, or a few at once."""

from glow_index_builder.encoding.blocks import (
    Block,
    BlockEncoder,
    EncodedBlocks,
    encode_block,
    open_encoder,
    plan_blocks,
)
from glow_index_builder.encoding.known import KnownVectors, texts_with_known
from glow_index_builder.encoding.ray_tasks import RayImport, in_ray
from glow_index_builder.encoding.schedule import (
    MAX_KILLS,
    Run,
    encode_blocks,
    encode_texts,
    in_child,
    in_threads,
)
from glow_index_builder.encoding.text_encoder import TextEncoder, batch_tokens, encode_jobs

__all__ = [
    "MAX_KILLS", "Block", "BlockEncoder", "EncodedBlocks", "KnownVectors", "RayImport", "Run", "TextEncoder", "batch_tokens",
    "encode_block", "encode_blocks", "encode_jobs", "encode_texts", "in_child", "in_ray", "in_threads",
    "open_encoder", "plan_blocks", "texts_with_known",
]  # fmt: skip
