"""A re-ranker's graphs, open: documents to the states that are stored, and a query with stored states to scores.

Source: PreTTR section 4. Layers 1 to l read query and document apart; what they make of a document is stored when an index is built.

    B   documents       Lq, Ld  tokens of a query, of the longest document      H   hidden size     e   numbers of a stored token
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from pydantic import Field

from glow.artifact import DOCUMENT_READER, JOIN_GRAPH, LATE_GRAPH, QUERY_READER, RERANKER_SHAPE
from glow.errors import FormatError
from glow.options import StrictModel
from glow.records import Document
from glow.runtime.session import Device, open_session
from glow.text import (
    Preprocessor,
    TermTable,
    WeightedTokens,
    WordPieces,
    batches_by_length,
    load_preprocessor,
    pad,
)

__all__ = [
    "DocumentReader",
    "QueryStates",
    "RerankMethod",
    "Reranker",
    "RerankerShape",
    "reranker_preprocessor",
]

RerankMethod = Literal["join", "late"]
"""The joined layers, or late interaction alone, which is cheaper."""
READ_TOKENS = 512
"""Of a batch of documents; small ones stay in a core's cache."""


class RerankerShape(StrictModel):
    """`reranker.json`: what stored states must fit.

    Attributes:
        layers, split: n and l.
        size: e.
        compressed: whether what is stored comes out of a compressor, so that fewer than 16 bits hold it.
        query_tokens: longest query; documents' positions begin there.
        document_tokens: longest document.
        methods: what it can score by, the default first.
    """

    layers: int = Field(ge=2)
    split: int = Field(ge=1)
    size: int = Field(ge=1)
    compressed: bool
    query_tokens: int = Field(ge=3)
    document_tokens: int = Field(ge=2)
    methods: tuple[RerankMethod, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True, eq=False)
class QueryStates:
    """A query after layer l.

    Attributes:
        tokens: as they were read, [CLS] first.
        states: float32 [1, Lq, H].
        mask: int64 [1, Lq], 1 everywhere.
    """

    tokens: WeightedTokens
    states: NDArray[np.float32]
    mask: NDArray[np.int64]


def reranker_preprocessor(folder: Path, terms: TermTable, pieces: WordPieces | None = None) -> Preprocessor:
    """What makes a re-ranker's input; its words' weights are not read.

    Args:
        folder: of the re-ranker.
        terms: any table.
        pieces: of the same vocabulary, to be shared; None: made anew.

    Raises:
        ConfigError, FormatError: as `load_preprocessor`.
    """
    return load_preprocessor(folder, terms, pieces)


class DocumentReader:
    """Reads documents by layers 1 to l; safe to use from many threads.

    Args:
        folder: of the re-ranker.
        preprocessor: its own.
        device, threads: as for `open_session`.

    Raises:
        DeviceError, FormatError: as `open_session`.
    """

    def __init__(
        self, folder: Path, preprocessor: Preprocessor, device: Device = "cpu", threads: int = 1
    ) -> None:
        self.shape = RerankerShape.load(folder / RERANKER_SHAPE)
        self._preprocessor = preprocessor
        self._session = open_session(folder / DOCUMENT_READER, device, threads)

    def tokens(self, document: Document) -> WeightedTokens:
        """A document as it is read, without [CLS], which is the query's."""
        return self._preprocessor.document(document).without_first()

    def read(self, documents: Sequence[Document]) -> list[NDArray[np.float32]]:
        """What is stored of documents, float32 [L, e] each, L >= 1, in the order given."""
        sequences = [self.tokens(document) for document in documents]
        found: list[NDArray[np.float32]] = [np.empty((0, self.shape.size), np.float32)] * len(sequences)
        for rows in batches_by_length([len(sequence) for sequence in sequences], READ_TOKENS):
            stored, _ = self.read_tokens([sequences[row] for row in rows])
            for row, states in zip(rows, stored, strict=True):
                found[row] = np.array(states[: len(sequences[row])])
        return found

    def read_tokens(
        self, sequences: Sequence[WeightedTokens]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Reads one padded batch of at least one document: states float32 [B, Ld, e] and mask int64 [B, Ld]."""
        batch = pad(sequences, self._preprocessor.pieces.pad_id)
        inputs = {"ids": batch.ids, "mask": batch.mask, "field_ids": batch.field_ids}
        return self._session.run(["stored"], inputs)[0], batch.mask


class Reranker:
    """Scores stored documents for a query; safe to use from many threads.

    Args:
        folder: of the re-ranker.
        preprocessor: its own.
        device, threads: as for `open_session`.

    Attributes:
        shape: what stored states must fit.

    Raises:
        DeviceError, FormatError: as `open_session`; FormatError also for graphs of other inputs.
    """

    def __init__(
        self, folder: Path, preprocessor: Preprocessor, device: Device = "cpu", threads: int = 1
    ) -> None:
        self.shape = RerankerShape.load(folder / RERANKER_SHAPE)
        self.preprocessor = preprocessor
        self._folder, self._device, self._threads = folder, device, threads
        self._query = open_session(folder / QUERY_READER, device, threads)
        files: dict[RerankMethod, str] = {"join": JOIN_GRAPH, "late": LATE_GRAPH}
        self._pairs = {
            method: _open_pairs(folder / files[method], self.shape, device, threads)
            for method in self.shape.methods
        }
        self._lock = threading.Lock()
        self._documents: DocumentReader | None = None

    def query(self, text: str) -> QueryStates:
        """Reads a query by layers 1 to l."""
        return self.read(self.preprocessor.query(text))

    def read(self, tokens: WeightedTokens) -> QueryStates:
        """As `query`, of its tokens."""
        batch = pad([tokens], self.preprocessor.pieces.pad_id)
        states = self._query.run(["states"], {"ids": batch.ids, "mask": batch.mask})[0]
        return QueryStates(tokens, states, batch.mask)

    def score(
        self, query: QueryStates, stored: NDArray[np.float32], mask: NDArray[np.int64], method: RerankMethod
    ) -> NDArray[np.float32]:
        """Scores documents.

        Args:
            query: as read.
            stored: float32 [B, Ld, e].
            mask: int64 [B, Ld], 1 for tokens.
            method: one of `shape.methods`.

        Returns:
            float32 [B], finite, of any sign; higher is better.
        """
        scores: NDArray[np.float32] = self._run(query, stored, mask, method, "score")
        return scores

    def attention(
        self, query: QueryStates, stored: NDArray[np.float32], mask: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """What [CLS] attends to in the last joined layer, mean over heads: float32 [B, Lq + Ld]; arguments as `score`."""
        return self._run(query, stored, mask, "join", "attention")

    def document_tokens(self, document: Document) -> WeightedTokens:
        """A document as it was read when it was stored."""
        return self.preprocessor.document(document).without_first()

    def documents(self) -> DocumentReader:
        """What reads documents, opened when it is first asked for."""
        with self._lock:
            if self._documents is None:
                self._documents = DocumentReader(self._folder, self.preprocessor, self._device, 1)
            return self._documents

    def _run(
        self,
        query: QueryStates,
        stored: NDArray[np.float32],
        mask: NDArray[np.int64],
        method: RerankMethod,
        output: str,
    ) -> NDArray[np.float32]:
        inputs = {"query": query.states, "query_mask": query.mask, "stored": stored, "mask": mask}
        found: NDArray[np.float32] = self._pairs[method].run([output], inputs)[0]
        return found


def _open_pairs(
    path: Path, shape: RerankerShape, device: Device, threads: int
) -> onnxruntime.InferenceSession:
    session = open_session(path, device, threads)
    inputs = {value.name: value.shape for value in session.get_inputs()}
    wanted = {"query", "query_mask", "stored", "mask"}
    if set(inputs) != wanted or inputs["stored"][-1] != shape.size:
        raise FormatError(
            f"{path.name} does not score stored tokens of {shape.size} numbers: found inputs {inputs}, expected {sorted(wanted)}"
        )
    return session
