"""Writes that a service accepted, applied to the index: `glow ingest`."""

from glow_index_builder.ingest.ingester import Ingester, is_claimed
from glow_index_builder.ingest.options import IngestOptions

__all__ = ["IngestOptions", "Ingester", "is_claimed"]
