"""Changes to a live version without a rebuild: upsert, delete, compact."""

from glow_index_builder.deltas.change import DeltaResult, apply_changes, delete, upsert
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.input import Changes
from glow_index_builder.deltas.options import CompactOptions, DeleteOptions, UpsertOptions

__all__ = [
    "Changes", "CompactOptions", "DeleteOptions", "DeltaResult", "UpsertOptions", "apply_changes",
    "compact", "delete", "upsert",
]  # fmt: skip
