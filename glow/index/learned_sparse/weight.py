"""The weight of learned impacts relative to BM25: `learned.json` of a version."""

from pydantic import Field

from glow.errors import ConfigError, FormatError
from glow.index.segment import Segment
from glow.options import StrictModel

__all__ = ["LEARNED_WEIGHT_FILE", "LearnedWeight", "read_weight"]

LEARNED_WEIGHT_FILE = "learned.json"


class LearnedWeight(StrictModel):
    """`learned.json` of a version: the weight of learned impacts, fitted by `glow tune`.

    Attributes:
        weight: 1 as in the head's training; 0 leaves only BM25.
    """

    weight: float = Field(default=1.0, ge=0.0, le=100.0)


def read_weight(segment: Segment) -> float:
    """The weight of a base, 1 by default; 1 for a delta, which gets its base's when they are joined.

    Raises:
        FormatError: if the file cannot be read.
    """
    if segment.below or segment.files is None or not segment.has(LEARNED_WEIGHT_FILE):
        return LearnedWeight().weight
    try:
        return LearnedWeight.load(segment.root / LEARNED_WEIGHT_FILE).weight
    except ConfigError as error:
        raise FormatError(f"index {segment.name}: {error}; tune the index again") from error
