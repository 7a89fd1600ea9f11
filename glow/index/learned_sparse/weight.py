"""How much learned impacts count beside BM25's: `learned.json` of a version."""

from pydantic import Field

from glow.errors import ConfigError, FormatError
from glow.index.segment import Segment
from glow.options import StrictModel

__all__ = ["LEARNED_WEIGHT_FILE", "LearnedWeight", "read_weight"]

LEARNED_WEIGHT_FILE = "learned.json"


class LearnedWeight(StrictModel):
    """`learned.json` of a version: how much learned impacts count beside BM25's, fitted by `glow tune`.

    Attributes:
        weight: 1 is what the head was trained with; 0 leaves BM25 alone.
    """

    weight: float = Field(default=1.0, ge=0.0, le=100.0)


def read_weight(segment: Segment) -> float:
    """What a base says; 1 if it says nothing, and of a delta, which joining gives its base's.

    Raises:
        FormatError: if the file cannot be read.
    """
    if segment.below or segment.files is None or not segment.has(LEARNED_WEIGHT_FILE):
        return LearnedWeight().weight
    try:
        return LearnedWeight.load(segment.root / LEARNED_WEIGHT_FILE).weight
    except ConfigError as error:
        raise FormatError(f"index {segment.name}: {error}; tune the index again") from error
