"""A live version changed in place of rebuilt: upsert, delete, compact."""

from glow_index_builder.deltas.change import DeltaResult, delete, upsert
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.input import read_identifier
from glow_index_builder.deltas.options import ChangeOptions, CompactOptions, DeleteOptions, UpsertOptions

__all__ = [
    "ChangeOptions", "CompactOptions", "DeleteOptions", "DeltaResult", "UpsertOptions", "compact", "delete",
    "read_identifier", "upsert",
]  # fmt: skip
