"""What searches ask of the parts of an index, whether one segment holds them or two (`glow.index.segments`)."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.learned_sparse import Expansion
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.index.token_embeddings import StatesHeader
from glow.index.vectors import IndexKind, SearchParams
from glow.records import Document
from glow.text import Analyzer

__all__ = ["DenseView", "DocumentsView", "ImpactsView", "LearnedView", "StatesView"]


class DenseView(Protocol):
    """What searches ask of vectors; `DenseIndex` describes each of it."""

    @property
    def kind(self) -> IndexKind: ...  # noqa: D102 - see the class
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def dimensions(self) -> int: ...  # noqa: D102
    @property
    def has_vectors(self) -> bool: ...  # noqa: D102
    def __len__(self) -> int: ...
    def search(  # noqa: D102
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
    def score(  # noqa: D102
        self, vector: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]: ...
    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]: ...  # noqa: D102


class DocumentsView(Protocol):
    """What searches ask of stored documents; `DocumentStore` describes each of it."""

    @property
    def count(self) -> int: ...  # noqa: D102 - see the class
    def get(self, document_id: str) -> Document: ...  # noqa: D102
    def find(self, document_id: str) -> int | None: ...  # noqa: D102
    def rows(self, rows: Sequence[int]) -> list[Document]: ...  # noqa: D102
    def ids(self, rows: Sequence[int]) -> list[str]: ...  # noqa: D102
    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]: ...  # noqa: D102
    def by_id(self) -> Iterator[tuple[str, int, str, str]]: ...  # noqa: D102


class ImpactsView(Protocol):
    """What searches ask of a lexical index; `ImpactIndex` describes each of it."""

    @property
    def largest(self) -> float: ...  # noqa: D102 - see the class
    @property
    def analyzer(self) -> Analyzer: ...  # noqa: D102
    def __len__(self) -> int: ...
    def search(  # noqa: D102
        self,
        words: Sequence[str],
        k: int,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking: ...
    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...  # noqa: D102
    def contributions(self, words: Sequence[str], row: int) -> dict[str, float]: ...  # noqa: D102
    def holds(self, word: str) -> bool: ...  # noqa: D102
    def bound(self, words: Sequence[str]) -> float: ...  # noqa: D102


class LearnedView(ImpactsView, Protocol):
    """What searches ask of learned impacts with BM25's; `LearnedImpacts` describes each of it."""

    @property
    def weight(self) -> float: ...  # noqa: D102 - see the class
    def with_weight(self, weight: float) -> "LearnedView": ...  # noqa: D102
    def expansions(self, words: Sequence[str], row: int) -> dict[str, Expansion]: ...  # noqa: D102


class StatesView(Protocol):
    """What re-ranking asks of term representations; `TermStates` describes each of it. Rows are those of vectors."""

    @property
    def header(self) -> StatesHeader: ...  # noqa: D102 - see the class
    def __len__(self) -> int: ...
    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...  # noqa: D102
    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...  # noqa: D102
