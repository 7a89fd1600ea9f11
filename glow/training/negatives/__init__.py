"""Hard negatives: mined, checked, stored and read."""

from glow.training.negatives.mining import Choose, MiningOptions, MiningRetriever, mine
from glow.training.negatives.negatives import documents_hash, match_negatives, write_negatives

__all__ = [
    "Choose", "MiningOptions", "MiningRetriever", "documents_hash", "match_negatives", "mine",
    "write_negatives",
]  # fmt: skip
