"""Changes to a live version without a rebuild: upsert, delete, compact."""

from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import (
    UNBOUNDED,
    Changes,
    CompactOptions,
    DeleteOptions,
    UpsertOptions,
    deletion,
)
from glow_index_builder.deltas.sync import SyncOptions, sync
from glow_index_builder.deltas.upsert import DeltaResult, apply_changes, delete, upsert

__all__ = [
    "UNBOUNDED", "Changes", "CompactOptions", "DeleteOptions", "DeltaResult", "SyncOptions", "UpsertOptions",
    "apply_changes", "compact", "delete", "deletion", "sync", "upsert",
]  # fmt: skip
