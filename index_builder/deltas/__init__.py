"""A live version changed in place of rebuilt: upsert, delete, compact."""

from glow_index_builder.deltas.change import DeltaResult, delete, upsert
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.options import CompactOptions, DeleteOptions, UpsertOptions

__all__ = [
    "CompactOptions", "DeleteOptions", "DeltaResult", "UpsertOptions", "compact", "delete", "upsert",
]  # fmt: skip
