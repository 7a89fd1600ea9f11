"""Training pairs: from judged folders and from MS MARCO's files."""

from glow.training.data.dataset import Collection, PairBatch, PairBatches, count_terms, read_collection
from glow.training.data.msmarco import is_msmarco, read_msmarco
from glow.training.data.msmarco_documents import MsMarcoDocuments
from glow.training.data.topics import topics_of
from glow.training.data.turns import one_at_a_time

__all__ = [
    "Collection", "MsMarcoDocuments", "PairBatch", "PairBatches", "count_terms", "is_msmarco",
    "one_at_a_time", "read_collection", "read_msmarco", "topics_of",
]  # fmt: skip
