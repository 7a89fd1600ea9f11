"""A live version changed in place of rebuilt: upsert, delete, compact."""

from glow_index_builder.deltas.change import DeltaOptions, DeltaResult, delete, upsert
from glow_index_builder.deltas.compact import CompactOptions, compact

__all__ = [
    "CompactOptions",
    "DeltaOptions",
    "DeltaResult",
    "compact",
    "delete",
    "upsert",
]
