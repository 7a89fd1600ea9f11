"""A set of shards: whole small indexes that answer as one, each over the documents whose ids fall to it."""

from glow.search.shards.format import (
    SHARDS_FILE,
    SHARDS_FOLDER,
    ShardField,
    ShardRecord,
    ShardSet,
    is_set,
    read_shard_set,
    set_spelling,
    shard_of,
    shard_root,
)
from glow.search.shards.gather import ShardCandidates, gather_candidates
from glow.search.shards.merge import MergedCandidates, merge_candidates

__all__ = [
    "SHARDS_FILE",
    "SHARDS_FOLDER",
    "MergedCandidates",
    "ShardCandidates",
    "ShardField",
    "ShardRecord",
    "ShardSet",
    "gather_candidates",
    "is_set",
    "merge_candidates",
    "read_shard_set",
    "set_spelling",
    "shard_of",
    "shard_root",
]
