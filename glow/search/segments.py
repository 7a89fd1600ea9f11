"""Two segments seen as one index: the rows of a base, some of them gone, and after them those of a delta.

Parts of an index are asked through the protocols here, so that what searches need not know whether there are one or two
segments. docs/decisions/0015 says why a delta is a small index of its own.

N, M   rows of base and delta; row N + i of both together is row i of the delta
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.records import Document
from glow.search.dense import SearchParams
from glow.search.kinds import IndexKind
from glow.search.ranking import Ranking
from glow.search.row_mask import RowMask

__all__ = ["DenseView", "DocumentsView", "ImpactsView", "SegmentMask", "Segments"]


class SegmentMask(RowMask):
    """A mask of all rows that also knows its parts, so that they are cut once, not for every search.

    Args:
        base: of the base's rows, without those that are gone.
        delta: of the delta's rows.
    """

    __slots__ = ("base", "delta")

    def __init__(self, base: RowMask, delta: RowMask) -> None:
        super().__init__(np.concatenate([base.mask, delta.mask]))
        self.base = base
        self.delta = delta

    @property
    def size_bytes(self) -> int:
        """What it may hold in memory, its parts included."""
        return super().size_bytes + self.base.size_bytes + self.delta.size_bytes


class Segments:
    """Where the base ends and the delta begins, and which rows of the base are gone; immutable.

    Args:
        base, delta: N and M.
        gone: different rows of the base that are found no more, int64 [t].

    Attributes:
        base, delta: as given.
        alive: the rows of the base that are left; None: all.
        count: rows that can be found, N - t + M.
    """

    def __init__(self, base: int, delta: int, gone: NDArray[np.int64]) -> None:
        self.base = base
        self.delta = delta
        self.count = base - len(gone) + delta
        self.alive: RowMask | None = None
        if len(gone):
            alive = np.ones(base, np.bool_)
            alive[gone] = False
            self.alive = RowMask(alive)

    def __len__(self) -> int:
        return self.base + self.delta

    def is_gone(self, row: int) -> bool:
        """Whether a row of the base is gone."""
        return self.alive is not None and not self.alive.mask[row]

    def join(self, base: NDArray[np.bool_], delta: NDArray[np.bool_]) -> SegmentMask:
        """Masks of both as one, without the rows that are gone.

        Args:
            base: bool [N]; belongs to the mask from now on.
            delta: bool [M], likewise.
        """
        if self.alive is not None:
            base &= self.alive.mask
        return SegmentMask(RowMask(base), RowMask(delta))

    def split(self, allowed: RowMask | None) -> tuple[RowMask | None, RowMask | None]:
        """The parts of a mask of all rows; rows that are gone are never allowed.

        Raises:
            MismatchError: a mask of another number of rows.
        """
        if allowed is None:
            return self.alive, None
        if len(allowed) != len(self):
            raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {len(self)}")
        if isinstance(allowed, SegmentMask):
            return allowed.base, allowed.delta
        joined = self.join(allowed.mask[: self.base].copy(), allowed.mask[self.base :].copy())
        return joined.base, joined.delta


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


class DocumentsView(Protocol):
    """What searches ask of stored documents; `DocumentStore` describes each of it."""

    @property
    def count(self) -> int: ...  # noqa: D102 - see the class
    def get(self, document_id: str) -> Document: ...  # noqa: D102
    def find(self, document_id: str) -> int | None: ...  # noqa: D102
    def rows(self, rows: Sequence[int]) -> list[Document]: ...  # noqa: D102
    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]: ...  # noqa: D102
    def by_id(self) -> Iterator[tuple[str, int, str, str]]: ...  # noqa: D102


class ImpactsView(Protocol):
    """What searches ask of a lexical index; `ImpactIndex` describes each of it."""

    @property
    def largest(self) -> float: ...  # noqa: D102 - see the class
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
    def bound(self, words: Sequence[str]) -> float: ...  # noqa: D102
