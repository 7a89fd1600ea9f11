"""Changes to a live version without a rebuild: upsert, delete, compact."""

from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import Changes, CompactOptions, DeleteOptions, UpsertOptions
from glow_index_builder.deltas.upsert import DeltaResult, apply_changes, delete, upsert

__all__ = [
    "Changes", "CompactOptions", "DeleteOptions", "DeltaResult", "UpsertOptions", "apply_changes",
    "compact", "delete", "upsert",
]  # fmt: skip
