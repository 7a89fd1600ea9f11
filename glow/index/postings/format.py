"""Files of an inverted index, and its header.

Everything is little-endian: a JSON header, a vocabulary (`glow.index.postings.vocabulary`), and arrays in NumPy's format,
read without pickle.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glow.index.postings.vocabulary import VOCABULARY_FILES
from glow.options import StrictModel
from glow.storage import read_header
from glow.text import AnalyzerName

__all__ = [
    "CAUSES_FILE", "CODES_FILE", "IMPACTS_FILES", "IMPACTS_FOLDER", "IMPACTS_HEADER", "LARGEST_IMPACT", "LEARNED_FILES", "LEARNED_FOLDER",
    "MAXIMA_FILE", "ROWS_FILE", "STARTS_FILE", "STAYING_FILES", "VALUES_FILE", "ImpactHeader",
    "read_impacts_header",
]  # fmt: skip

FORMAT_VERSION: Literal[1] = 1
IMPACTS_FOLDER = "impacts"
IMPACTS_HEADER = "impacts.json"
STARTS_FILE, MAXIMA_FILE, ROWS_FILE, VALUES_FILE = "starts.npy", "maxima.npy", "rows.npy", "impacts.npy"
CODES_FILE, CAUSES_FILE = "codes.npy", "causes.npy"
_SHARED_FILES = (IMPACTS_HEADER, *VOCABULARY_FILES, STARTS_FILE, MAXIMA_FILE)
IMPACTS_FILES = (*_SHARED_FILES, ROWS_FILE, VALUES_FILE)
LEARNED_FOLDER = "learned"
LEARNED_FILES = (*_SHARED_FILES, ROWS_FILE, CODES_FILE, CAUSES_FILE)
"""Files of learned impacts: 8-bit codes, each with the position of the document's word that it comes from."""
STAYING_FILES = _SHARED_FILES
"""Files that stay in the version's directory if the lists are in a store."""
LARGEST_IMPACT = 1e30
"""Limit of an impact, so that a query's sum is finite in float32."""


class ImpactHeader(StrictModel):
    """`impacts.json`.

    Attributes:
        format: format version.
        kind: source of the impacts.
        analyzer: turned words into terms.
        layout: of the lists.
        documents, words, postings: n, v and p.
        parameters: of the impacts: for BM25 k1, b and the average length; for learned ones `unit`, the impact of
            code 1, and `budget`, the most words of a document.
    """

    format: Literal[1] = FORMAT_VERSION
    kind: Literal["bm25", "learned"]
    analyzer: AnalyzerName = "plain"
    layout: Literal["plain"] = "plain"
    documents: int = Field(ge=0, le=2**32 - 1)
    words: int = Field(ge=0)
    postings: int = Field(ge=0)
    parameters: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "learned" and (self.unit <= 0.0 or not {"unit", "budget"} <= self.parameters.keys()):
            raise ValueError("learned impacts need the parameters unit, above 0, and budget")
        if self.unit > LARGEST_IMPACT:
            raise ValueError(
                f"the parameter unit is above {LARGEST_IMPACT:.0e}: sums of it would not be finite"
            )
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the index."""
        return LEARNED_FILES if self.kind == "learned" else IMPACTS_FILES

    @property
    def unit(self) -> float:
        """Impact of code 1 for learned impacts; 1 for impacts stored as numbers."""
        return self.parameters.get("unit", 1.0)


def read_impacts_header(folder: Path) -> ImpactHeader:
    """Reads the header.

    Raises:
        FormatError: if it is missing, or of another format.
    """
    return read_header(folder / IMPACTS_HEADER, ImpactHeader)
