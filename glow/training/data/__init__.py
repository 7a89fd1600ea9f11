"""Training pairs from data directories with relevance judgments."""

from glow.training.data.dataset import Collection, count_terms, read_collection
from glow.training.data.epochs import Epochs, Rows
from glow.training.data.pairs import PairBatch, PairBatches
from glow.training.data.topics import topics_of
from glow.training.data.turns import one_at_a_time

__all__ = [
    "Collection", "Epochs", "PairBatch", "PairBatches", "Rows", "count_terms", "one_at_a_time", "read_collection", "topics_of",
]  # fmt: skip
