"""A re-ranker's graphs: documents to token embeddings, which are stored, and a query with stored ones to scores.

Source: PreTTR section 4. Layers 1 to l read query and document apart; a build stores their output for each document.

    B   documents       Lq, Ld  tokens of a query, of the longest document      H   hidden size     e   numbers per stored token
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.artifact import DOCUMENT_READER, JOIN_GRAPH, QUERY_READER, RERANKER_SHAPE
from glow.errors import FormatError
from glow.options import StrictModel
from glow.records import Document
from glow.runtime.encoder import Device, open_session
from glow.text import Preprocessor, WeightedTokens, batches_by_length, pad

READ_TOKENS = 512
"""Token limit of a batch of documents; small ones stay in a core's cache."""
PAIR_INPUTS = {"query", "query_mask", "stored", "mask"}


class RerankerShape(StrictModel):
    """`reranker.json`: the shape that stored token embeddings must have."""

    layers: int = Field(ge=2)  # layers, split: n and l
    split: int = Field(ge=1)
    size: int = Field(ge=1)  # e
    query_tokens: int = Field(ge=3)  # longest query; positions of documents begin there
    document_tokens: int = Field(ge=2)  # longest document


@dataclass(frozen=True, slots=True, eq=False)
class QueryStates:
    """A query after layer l."""

    tokens: WeightedTokens  # of the query, [CLS] first
    states: NDArray[np.float32]  # float32 [1, Lq, H], token embeddings
    mask: NDArray[np.int64]  # int64 [1, Lq], 1 everywhere


class DocumentReader:
    """Runs documents through layers 1 to l of a re-ranker, with its preprocessor; safe to use from many threads."""

    def __init__(
        self, folder: Path, preprocessor: Preprocessor, device: Device = "cpu", threads: int = 1
    ) -> None:
        self.shape = RerankerShape.load(folder / RERANKER_SHAPE)
        self._preprocessor = preprocessor
        self._session = open_session(folder / DOCUMENT_READER, device, threads)

    def tokens(self, document: Document) -> WeightedTokens:
        """The tokens of a document without [CLS], which only the query has."""
        return self._preprocessor.document(document).without_first()

    def read(self, documents: Sequence[Document]) -> list[NDArray[np.float32]]:
        """Token embeddings to store, float32 [L, e] for each document, L >= 1, in the order given."""
        sequences = [self.tokens(document) for document in documents]
        stored = dict[int, NDArray[np.float32]]()
        for rows in batches_by_length([len(sequence) for sequence in sequences], READ_TOKENS):
            batch, _ = self.read_tokens([sequences[row] for row in rows])
            for row, states in zip(rows, batch, strict=True):
                stored[row] = np.array(states[: len(sequences[row])])
        return [stored[row] for row in range(len(sequences))]

    def read_tokens(
        self, sequences: Sequence[WeightedTokens]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Reads one padded batch of at least one document: token embeddings float32 [B, Ld, e] and mask int64 [B, Ld]."""
        batch = pad(sequences, self._preprocessor.pieces.pad_id)
        inputs = {"ids": batch.ids, "mask": batch.mask, "field_ids": batch.field_ids}
        return self._session.run(["stored"], inputs)[0], batch.mask


class Reranker:
    """Scores stored documents for a query, with its own preprocessor; safe to use from many threads."""

    def __init__(
        self, folder: Path, preprocessor: Preprocessor, device: Device = "cpu", threads: int = 1
    ) -> None:
        self.shape = RerankerShape.load(folder / RERANKER_SHAPE)  # that stored token embeddings must have
        self.preprocessor = preprocessor
        self._folder, self._device, self._threads = folder, device, threads
        self._query = open_session(folder / QUERY_READER, device, threads)
        self._pairs = open_session(folder / JOIN_GRAPH, device, threads)
        inputs = {value.name: value.shape for value in self._pairs.get_inputs()}
        if set(inputs) != PAIR_INPUTS or inputs["stored"][-1] != self.shape.size:
            raise FormatError(
                f"{JOIN_GRAPH} does not score stored tokens of {self.shape.size} numbers: found inputs {inputs}, "
                f"expected {sorted(PAIR_INPUTS)}"
            )
        self._lock = threading.Lock()
        self._documents: DocumentReader | None = None

    def query(self, text: str) -> QueryStates:
        """Runs a query through layers 1 to l."""
        return self.read(self.preprocessor.query(text))

    def read(self, tokens: WeightedTokens) -> QueryStates:
        """As `query`, for tokens."""
        batch = pad([tokens], self.preprocessor.pieces.pad_id)
        states = self._query.run(["states"], {"ids": batch.ids, "mask": batch.mask})[0]
        return QueryStates(tokens, states, batch.mask)

    def score(
        self,
        query: QueryStates,
        stored: NDArray[np.float32],  # float32 [B, Ld, e]
        mask: NDArray[np.int64],  # int64 [B, Ld], 1 for tokens
    ) -> NDArray[np.float32]:
        """Scores documents. Returns float32 [B], finite, of any sign; higher is better."""
        return self._run(query, stored, mask, "score")

    def attention(
        self, query: QueryStates, stored: NDArray[np.float32], mask: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Attention of [CLS] in the last joined layer, mean over heads: float32 [B, Lq + Ld]; arguments as `score`."""
        return self._run(query, stored, mask, "attention")

    def document_tokens(self, document: Document) -> WeightedTokens:
        """The tokens of a document, as when it was stored."""
        return self.preprocessor.document(document).without_first()

    def documents(self) -> DocumentReader:
        """The reader of documents, opened at the first call."""
        with self._lock:
            if self._documents is None:
                self._documents = DocumentReader(self._folder, self.preprocessor, self._device, 1)
            return self._documents

    def _run(
        self, query: QueryStates, stored: NDArray[np.float32], mask: NDArray[np.int64], output: str
    ) -> NDArray[np.float32]:
        inputs = {"query": query.states, "query_mask": query.mask, "stored": stored, "mask": mask}
        values: NDArray[np.float32] = self._pairs.run([output], inputs)[0]
        return values
