"""Learning from clicks: joins two logs, measures position bias, writes clicked queries and training pairs."""

from glow_index_builder.clicks.learning import LearnLimits, learn
from glow_index_builder.clicks.propensities import Propensities, count_at_ranks, measure_propensities
from glow_index_builder.clicks.sessions import ClickLimits, Joined, join, same_query
from glow_index_builder.clicks.writing import FIELD, write_documents, write_training

__all__ = [
    "FIELD", "ClickLimits", "Joined", "LearnLimits", "Propensities", "count_at_ranks", "join", "learn", "measure_propensities",
    "same_query", "write_documents", "write_training",
]  # fmt: skip
