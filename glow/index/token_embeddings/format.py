"""Files of the token embeddings: a JSON header, start of each document's tokens, codes and scales."""

from typing import Literal

from pydantic import Field

from glow.index.token_embeddings.codes import StateBits
from glow.options import StrictModel

__all__ = [
    "CODES_FILE", "OFFSETS_FILE", "SCALES_FILE", "STATES_FILES", "STATES_FOLDER", "STATES_HEADER", "StatesHeader",
]  # fmt: skip

FORMAT_VERSION: Literal[1] = 1
STATES_FOLDER = "states"
STATES_HEADER = "states.json"
OFFSETS_FILE, CODES_FILE, SCALES_FILE = "offsets.npy", "codes.npy", "scales.npy"
STATES_FILES = (STATES_HEADER, OFFSETS_FILE, CODES_FILE, SCALES_FILE)


class StatesHeader(StrictModel):
    """`states.json` (row 31 of docs/papers.md).

    Attributes:
        format: format version.
        model: hash of the re-ranker that computed them; only it can use them.
        split: l, number of its layers apart.
        size: e, numbers per token.
        bits: per number.
        position_start: first position of documents.
        document_tokens: longest document.
        documents, tokens: n and t.
    """

    format: Literal[1] = FORMAT_VERSION
    model: str = Field(min_length=1)
    split: int = Field(ge=1)
    size: int = Field(ge=1)
    bits: StateBits
    position_start: int = Field(ge=1)
    document_tokens: int = Field(ge=1)
    documents: int = Field(ge=0, le=2**32 - 1)
    tokens: int = Field(ge=0)
