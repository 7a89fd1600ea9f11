"""A segment of an index, which is one directory of files with its open readers, and the view of it for searches.

n   documents       v   vectors: n, or the passages of n documents      m   requested rows
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.artifact import FileKey
from glow.errors import MismatchError
from glow.index.ranking import Ranking, RowMask
from glow.runtime import Device

S = TypeVar("S")
"""The reader of one segment's files: it has the methods of an R, and the data that `merge` copies."""
R = TypeVar("R")
"""The reader for searches, over one segment or over a base and its delta."""
Item = TypeVar("Item")
Scalar = TypeVar("Scalar", bound=np.generic)
Per = Literal["document", "vector", "index"]
Files = Mapping[str, tuple[FileKey, str]]
"""Path -> identity of the file, and its SHA-256."""
DELTA = "delta/"


class Key(Generic[S, R]):
    """Key of a component's readers."""

    name: ClassVar[str]  # of the component
    label: ClassVar[str]  # the component in messages


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of a segment, or of a base and its delta."""

    documents: int  # n
    # uint32 [n + 1], the first vector of each document, and v; None: row i is document i
    first: NDArray[np.uint32] | None = None

    def count(self, per: Per) -> int:
        """Number of rows of a component: n, or v."""
        return int(self.first[-1]) if per == "vector" and self.first is not None else self.documents

    def held(self, per: Per, live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """A component's rows of the live documents, bool [n] -> int64, ascending."""
        if per == "document" or self.first is None:
            return np.flatnonzero(live)
        return np.flatnonzero(np.repeat(live, np.diff(self.first)))


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A base, a delta, or an unfinished segment: one directory, and the readers that are open so far."""

    name: str  # of the version, for messages
    folder: Path  # directory of its files
    # The version's directory, or for an unfinished delta its base's; shared files are there (`reranker/`,
    # `learned-words/`)
    root: Path
    below: str  # "" for a base, `DELTA` for a delta
    hashes: Mapping[str, str]  # hashes, parameters: of the version's manifest
    parameters: Mapping[str, Any]
    files: Files | None  # the verified ones, by their paths in the directory; None: the segment is unfinished
    rows: Rows  # its rows; the vectors are known once the component that splits documents is open
    device: Device = "cpu"  # of vector search
    readers: Mapping[str, Any] = field(default_factory=dict)  # name of a component -> its reader
    # Directories of a build's previous steps; each step has its own, so that a build can resume
    earlier: tuple[Path, ...] = ()

    @property
    def remedy(self) -> str:
        """Advice for a damaged segment."""
        return "roll back to an older version" if self.below else "rebuild the index"

    def path(self, name: str) -> Path:
        """Path of a file or directory."""
        places = (folder / name for folder in (self.folder, *self.earlier))
        return next((place for place in places if place.exists()), self.folder / name)

    def has(self, path: str) -> bool:
        """Whether a file was verified, or exists if the segment is unfinished."""
        return self.path(path).is_file() if self.files is None else path in self.files

    def has_any(self, paths: Sequence[str]) -> bool:
        """Whether there is any file below some paths."""
        if self.files is None:
            return any(self.path(path).exists() for path in paths)
        return any(name.startswith(tuple(paths)) for name in self.files)

    def require(self, *paths: str) -> None:
        """Refuses files that the manifest lacks."""
        for path in paths:
            if not self.has(path):
                lacks = f"manifest lacks {self.below}{path}; {self.remedy}"
                raise MismatchError(f"the {lacks}" if self.below else f"index {self.name}: its {lacks}")

    def get(self, component: Key[S, Any]) -> S | None:
        """A component's reader; None if the segment lacks the component."""
        reader: S | None = self.readers.get(component.name)
        return reader

    def __getitem__(self, component: Key[S, Any]) -> S:
        """A component's reader."""
        reader = self.get(component)
        if reader is None:
            raise MismatchError(f"index {self.name} has no {component.label}; {self.remedy}")
        return reader

    def with_reader(
        self,
        component: Key[S, Any],
        reader: S,
        # See `Rows`, if the component splits documents; None: rows do not change
        first: NDArray[np.uint32] | None = None,
    ) -> "Segment":
        """The same segment with one more component open."""
        rows = self.rows if first is None else Rows(self.rows.documents, first)
        return replace(self, rows=rows, readers={**self.readers, component.name: reader})

    def shares(self, other: "Segment", paths: Sequence[str]) -> bool:
        """Whether another segment has the identical files below some paths, and the same device."""
        mine, theirs = (
            {name: key for name, key in (each.files or {}).items() if name.startswith(tuple(paths))}
            for each in (self, other)
        )
        return mine == theirs and self.device == other.device and self.below == other.below


class MergeSource(NamedTuple):
    """A segment, and its live documents: bool [n]."""

    segment: Segment
    live: NDArray[np.bool_]

    @property
    def documents(self) -> int:
        """Number of live documents."""
        return int(np.count_nonzero(self.live))

    def rows(self, per: Per) -> NDArray[np.int64]:
        """A component's live rows, int64, ascending."""
        return self.segment.rows.held(per, self.live)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The components of a base and its delta as one, or of a base alone, for searches."""

    name: str  # of the version, for messages
    rows: Rows  # of both
    readers: Mapping[str, Any]  # name of a component -> its reader

    def holds(self, component: Key[Any, Any]) -> bool:
        """Whether the index has a component."""
        return component.name in self.readers

    def get(self, component: Key[Any, R]) -> R | None:
        """A component's reader; None if the index lacks the component."""
        reader: R | None = self.readers.get(component.name)
        return reader

    def __getitem__(self, component: Key[Any, R]) -> R:
        """A component's reader."""
        reader = self.get(component)
        if reader is None:
            raise MismatchError(f"index {self.name} has no {component.label}; rebuild the index")
        return reader


class SegmentMask(RowMask):
    """A mask of all rows that keeps its two parts, so that no search splits it again."""

    __slots__ = ("base", "delta")

    def __init__(
        self,
        base: RowMask,  # mask of the base's rows, without deleted ones
        delta: RowMask,  # mask of the delta's rows
    ) -> None:
        super().__init__(np.concatenate([base.mask, delta.mask]))
        self.base = base
        self.delta = delta

    def tell(self, expression: Any) -> None:
        """As `RowMask.tell`; only the base may be in a vector store."""
        self.expression = self.base.expression = expression

    @property
    def size_bytes(self) -> int:
        """Its maximum size in memory, including its parts."""
        return super().size_bytes + self.base.size_bytes + self.delta.size_bytes


class Segments:
    """The sizes of base and delta, and the deleted rows of the base; immutable."""

    def __init__(
        self,
        base: int,  # base, delta: N and M
        delta: int,
        gone: NDArray[np.int64],  # distinct deleted rows of the base, int64 [t]
    ) -> None:
        self.base = base
        self.delta = delta
        self.count = base - len(gone) + delta  # number of live rows, N - t + M
        self.alive: RowMask | None = None  # the live rows of the base; None: all
        if len(gone):
            alive = np.ones(base, np.bool_)
            alive[gone] = False
            self.alive = RowMask(alive)

    def __len__(self) -> int:
        return self.base + self.delta

    def is_gone(self, row: int) -> bool:
        """Whether a row of the base is deleted."""
        return self.alive is not None and not self.alive.mask[row]

    def join(
        self,
        base: NDArray[np.bool_],  # bool [N]; the mask takes ownership
        delta: NDArray[np.bool_],  # bool [M], likewise
    ) -> SegmentMask:
        """Masks of both as one, without deleted rows."""
        if self.alive is not None:
            base &= self.alive.mask
        return SegmentMask(RowMask(base), RowMask(delta))

    def split(self, allowed: RowMask | None) -> tuple[RowMask | None, RowMask | None]:
        """The parts of a mask of all rows; deleted rows are never allowed."""
        if allowed is None:
            return self.alive, None
        if len(allowed) != len(self):
            raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {len(self)}")
        if isinstance(allowed, SegmentMask):
            return allowed.base, allowed.delta
        joined = self.join(allowed.mask[: self.base].copy(), allowed.mask[self.base :].copy())
        joined.tell(allowed.expression)
        return joined.base, joined.delta


@dataclass(frozen=True, slots=True, eq=False)
class BaseAndDelta(Generic[S]):
    """The readers of a base and its delta; row N + i is row i of the delta."""

    name: str  # of the version, for messages
    base: S  # base, delta: the readers
    delta: S
    segments: Segments  # rows of both, and deleted ones of the base, in the component's own rows
    tombstones: NDArray[np.int64]  # deleted documents of the base, int64 [t], ascending
    order: NDArray[np.uint32]  # uint32 [N + M], the rank of each document's id among those of both

    def gather(
        self, rows: NDArray[np.int64], read: Callable[[S, NDArray[np.int64]], NDArray[Scalar]]
    ) -> NDArray[Scalar]:
        """Results of `read` for rows of both, int64 [m] -> [m, ...], in their order."""
        is_new = rows >= self.segments.base
        old, new = read(self.base, rows[~is_new]), read(self.delta, rows[is_new] - self.segments.base)
        found = np.empty((len(rows), *new.shape[1:]), new.dtype)
        found[~is_new], found[is_new] = old, new
        return found

    def owner(self, row: int) -> tuple[S, int]:
        """The reader that has a row, and the row number there."""
        first = self.segments.base
        return (self.base, row) if row < first else (self.delta, row - first)

    def collect(self, rows: Sequence[int], read: Callable[[S, list[int]], list[Item]]) -> list[Item]:
        """As `gather`, for results that are not arrays."""
        first = self.segments.base
        old = iter(read(self.base, [row for row in rows if row < first]))
        new = iter(read(self.delta, [row - first for row in rows if row >= first]))
        return [next(old if row < first else new) for row in rows]

    def search(
        self,
        # Searches one reader: allowed rows, ranks of its rows -> scores and rows [..., k']
        find: Callable[[S, RowMask | None, NDArray[np.uint32] | None], Ranking],
        k: int,
        allowed: RowMask | None,  # rows of both; None: all
        order: NDArray[np.uint32] | None,  # ranks of the rows of both, which break ties; None: by row
    ) -> Ranking:
        """The k best of both, without deleted rows."""
        base, delta = self.segments.split(allowed)
        later = None if order is None else order[self.segments.base :]
        (old_scores, old_rows), (new_scores, new_rows) = (
            find(self.base, base, order),
            find(self.delta, delta, later),
        )
        scores = np.concatenate([old_scores, new_scores], axis=-1)
        rows = np.concatenate([old_rows, new_rows + self.segments.base], axis=-1)
        # Row -1, which fills missing hits, has the score -inf: it comes last with any rank.
        places = np.lexsort((rows if order is None else order[rows], -scores), axis=-1)[..., :k]
        return np.take_along_axis(scores, places, -1), np.take_along_axis(rows, places, -1)
