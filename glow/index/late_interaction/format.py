"""Files of the token embeddings: a JSON header, starts of rows, codes, and the represented tokens."""

from typing import Literal

from pydantic import Field

from glow.index.late_interaction.scoring import MOST_NUMBERS
from glow.options import StrictModel

__all__ = [
    "CODES_FILE", "LATE_FILES", "LATE_FOLDER", "LATE_HEADER", "PLACES_FILE", "STARTS_FILE", "LateHeader",
]  # fmt: skip

FORMAT_VERSION: Literal[1] = 1
LATE_FOLDER = "late"
LATE_HEADER = "late.json"
STARTS_FILE, CODES_FILE, PLACES_FILE = "starts.npy", "codes.npy", "places.npy"
LATE_FILES = (LATE_HEADER, STARTS_FILE, CODES_FILE, PLACES_FILE)


class LateHeader(StrictModel):
    """`late.json`.

    Attributes:
        format: format version.
        model: hash of the model that encoded the documents; queries must be encoded by the same one.
        size: P, dimensions of a token, each stored as its sign.
        budget: most tokens of a row.
        rows, tokens: v and t.
    """

    format: Literal[1] = FORMAT_VERSION
    model: str = Field(min_length=1)
    size: int = Field(ge=8, le=MOST_NUMBERS, multiple_of=8)
    budget: int = Field(ge=1, le=2**16 - 1)
    rows: int = Field(ge=0, le=2**32 - 1)
    tokens: int = Field(ge=0)
