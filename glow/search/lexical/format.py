"""Files of an inverted index, and the checks of what is read from them.

Everything is little-endian: a JSON header, a vocabulary (`glow.search.lexical.vocabulary`), and four arrays in NumPy's own
format, read without pickle.
"""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from glow.errors import FormatError
from glow.options import StrictModel
from glow.search.lexical.vocabulary import VOCABULARY_FILES
from glow.storage import map_array, read_header
from glow.text import AnalyzerName

__all__ = [
    "CAUSES_FILE", "CODES_FILE", "IMPACTS_FILES", "IMPACTS_FOLDER", "IMPACTS_HEADER", "LEARNED_FILES", "LEARNED_FOLDER",
    "MAXIMA_FILE", "ROWS_FILE", "STARTS_FILE", "VALUES_FILE", "Arrays", "ImpactHeader", "read_arrays",
    "read_impacts_header",
]  # fmt: skip

FORMAT_VERSION: Literal[1] = 1
IMPACTS_FOLDER = "impacts"
IMPACTS_HEADER = "impacts.json"
STARTS_FILE, MAXIMA_FILE, ROWS_FILE, VALUES_FILE = "starts.npy", "maxima.npy", "rows.npy", "impacts.npy"
CODES_FILE, CAUSES_FILE = "codes.npy", "causes.npy"
_SHARED_FILES = (IMPACTS_HEADER, *VOCABULARY_FILES, STARTS_FILE, MAXIMA_FILE, ROWS_FILE)
IMPACTS_FILES = (*_SHARED_FILES, VALUES_FILE)
LEARNED_FOLDER = "learned"
LEARNED_FILES = (*_SHARED_FILES, CODES_FILE, CAUSES_FILE)
"""Learned impacts are codes of 8 bits, and each says which word of the document it comes from."""
CHECKED_AT_ONCE = 1 << 22


class ImpactHeader(StrictModel):
    """`impacts.json`.

    Attributes:
        format: version of the lay-out.
        kind: where the impacts come from.
        analyzer: made terms of words; an index of an older GLOW has no such entry, and words as they are.
        documents, words, postings: n, v and p.
        parameters: what made the impacts: for BM25 k1, b and the average length; for learned ones `unit`, the impact of
            code 1, and `budget`, the most words of a document.
    """

    format: Literal[1] = FORMAT_VERSION
    kind: Literal["bm25", "learned"]
    analyzer: AnalyzerName = "plain"
    documents: int = Field(ge=0, le=2**32 - 1)
    words: int = Field(ge=0)
    postings: int = Field(ge=0)
    parameters: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "learned" and (self.unit <= 0.0 or not {"unit", "budget"} <= self.parameters.keys()):
            raise ValueError("learned impacts need the parameters unit, above 0, and budget")
        return self

    @property
    def unit(self) -> float:
        """Impact of code 1 where impacts are learned; 1 where they are numbers as they are."""
        return self.parameters.get("unit", 1.0)


class Arrays(NamedTuple):
    """The arrays of an index, as `ImpactIndex` describes them."""

    starts: NDArray[np.int64]
    maxima: NDArray[np.float32]
    rows: NDArray[np.uint32]
    impacts: NDArray[np.float32] | NDArray[np.uint8]
    causes: NDArray[np.uint8] | None


def read_impacts_header(folder: Path) -> ImpactHeader:
    """Reads the header.

    Raises:
        FormatError: if it is missing, or of another format.
    """
    return read_header(folder / IMPACTS_HEADER, ImpactHeader)


def read_arrays(folder: Path, header: ImpactHeader, words: int) -> Arrays:
    """Maps the arrays and checks every value: a row beyond the documents must not fail at some later query.

    Args:
        folder: of the index.
        header: what the arrays must fit.
        words: words of the vocabulary.

    Raises:
        FormatError: if a file is missing or does not fit; it is named.
    """
    if words != header.words:
        raise _damaged(
            folder, IMPACTS_HEADER, f"it counts {header.words} words, the vocabulary holds {words}"
        )
    is_learned = header.kind == "learned"
    arrays = Arrays(
        map_array(folder / STARTS_FILE, np.int64, header.words + 1),
        map_array(folder / MAXIMA_FILE, np.float32, header.words),
        map_array(folder / ROWS_FILE, np.uint32, header.postings),
        map_array(folder / CODES_FILE, np.uint8, header.postings)
        if is_learned
        else map_array(folder / VALUES_FILE, np.float32, header.postings),
        map_array(folder / CAUSES_FILE, np.uint8, header.postings) if is_learned else None,
    )
    starts, maxima, rows, impacts, _ = arrays
    if starts[0] != 0 or starts[-1] != header.postings or (starts[1:] <= starts[:-1]).any():
        raise _damaged(folder, STARTS_FILE, f"it does not cut {header.postings} postings into words")
    if not _positive(maxima):
        raise _damaged(folder, MAXIMA_FILE, "it holds an impact that is not finite and above 0")
    for start in range(0, header.postings, CHECKED_AT_ONCE):
        block = slice(start, start + CHECKED_AT_ONCE)
        if (rows[block] >= header.documents).any():
            raise _damaged(folder, ROWS_FILE, f"it names a row beyond the {header.documents} documents")
        if not _positive(impacts[block]):
            raise _damaged(
                folder,
                CODES_FILE if is_learned else VALUES_FILE,
                "it holds an impact that is not finite and above 0",
            )
    return arrays


def _positive(impacts: NDArray[np.float32] | NDArray[np.uint8]) -> bool:
    return bool((np.isfinite(impacts) & (impacts > 0)).all())


def _damaged(folder: Path, name: str, what: str) -> FormatError:
    return FormatError(f"{folder.name}/{name} is damaged: {what}; rebuild the index")
