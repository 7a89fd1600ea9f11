"""`glow ingest`: applies the writes that a service accepted to the index."""

from glow_index_builder.ingest.ingester import Ingester, is_claimed
from glow_index_builder.ingest.options import IngestOptions

__all__ = ["IngestOptions", "Ingester", "is_claimed"]
