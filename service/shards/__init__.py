"""Sets of shards: what a shard answers to a router, and how a router searches all of them as one index."""

from glow_service.shards.connections import ShardConnections, parse_shards
from glow_service.shards.opening import ShardedIndex, open_set, open_version
from glow_service.shards.session import describe, open_session
from glow_service.shards.shard import answer_document, answer_rank, answer_show
from glow_service.shards.versions import ShardVersions
from glow_service.shards.wire import DocumentCall, OpenCall, RankCall, ShowCall, read_call

__all__ = [
    "DocumentCall", "OpenCall", "RankCall", "ShardConnections", "ShardVersions", "ShardedIndex", "ShowCall",
    "answer_document", "answer_rank", "answer_show", "describe", "open_session", "open_set", "open_version", "parse_shards",
    "read_call",
]  # fmt: skip
