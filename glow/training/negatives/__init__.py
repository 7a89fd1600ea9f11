"""Hard negatives: mined, checked, stored and read."""

from glow.training.negatives.mining import Choose, MiningOptions, MiningRetriever, mine
from glow.training.negatives.negatives import match_negatives

__all__ = [
    "Choose", "MiningOptions", "MiningRetriever", "match_negatives", "mine",
]  # fmt: skip
