"""Sets of shards: whole indexes below one root, built with one table of statistics and changed together."""

from glow_index_builder.sharding.build import SetResult, build_set
from glow_index_builder.sharding.change import compact_set, delete_from_set, upsert_into_set
from glow_index_builder.sharding.collect import collect_set
from glow_index_builder.sharding.version import live_set, verify_set

__all__ = [
    "SetResult", "build_set", "collect_set", "compact_set", "delete_from_set", "live_set", "upsert_into_set",
    "verify_set",
]  # fmt: skip
