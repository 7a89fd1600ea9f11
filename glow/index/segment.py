"""A segment of an index, which is one directory of files with its open readers, and the view of it for searches.

n   documents       v   vectors: n, or the passages of n documents      m   requested rows
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""The reader for searches, over all segments."""
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
    """The rows of a segment, or of all."""

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
    """The components of all segments, for searches."""

    name: str  # of the version, for messages
    rows: Rows  # of all segments
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
    """A mask of all rows that keeps its part of each segment, so that no search splits it again."""

    __slots__ = ("parts",)

    def __init__(
        self,
        parts: Sequence[RowMask],  # one for each segment, without deleted rows
    ) -> None:
        super().__init__(np.concatenate([part.mask for part in parts]))
        self.parts = tuple(parts)

    def tell(self, expression: Any) -> None:
        """As `RowMask.tell`; only the first segment may be in a vector store."""
        self.expression = self.parts[0].expression = expression

    @property
    def size_bytes(self) -> int:
        """Its maximum size in memory, including its parts."""
        return super().size_bytes + sum(part.size_bytes for part in self.parts)


class RowLayout:
    """How the rows of segments are numbered: row `starts[i] + r` is row r of segment i. Immutable."""

    def __init__(
        self,
        sizes: Sequence[int],  # rows of each segment
        gone: NDArray[np.int64],  # distinct deleted rows, numbered over all segments
    ) -> None:
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)  # int64 [s + 1]
        self.count = len(self) - len(gone)  # number of live rows
        # Deleted rows of each segment, in its own numbers, and a mask of its live rows; None: all
        self.gone = tuple(own for _, own, _ in self.split_rows(gone, with_empty=True))
        self.alive = tuple(_mask_without(size, own) for size, own in zip(sizes, self.gone, strict=True))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def split_rows(
        self, rows: NDArray[np.int64], *, with_empty: bool = False
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yields each segment that has some of the rows, their numbers in it, and their places among the rows."""
        owners = np.searchsorted(self.starts, rows, "right") - 1
        for segment, start in enumerate(self.starts[:-1].tolist()):
            places = np.flatnonzero(owners == segment)
            if len(places) or with_empty:
                yield segment, rows[places] - start, places

    def join(self, masks: Sequence[NDArray[np.bool_]]) -> RowMask:
        """The masks of all segments as one, without deleted rows; it takes ownership of them."""
        for mask, alive in zip(masks, self.alive, strict=True):
            if alive is not None:
                mask &= alive.mask
        parts = [RowMask(mask) for mask in masks]
        return parts[0] if len(parts) == 1 else SegmentMask(parts)

    def split(self, allowed: RowMask | None) -> tuple[RowMask | None, ...]:
        """The parts of a mask of all rows; deleted rows are never allowed."""
        if allowed is None:
            return self.alive
        if len(allowed) != len(self):
            raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {len(self)}")
        if isinstance(allowed, SegmentMask):
            return allowed.parts
        joined = self.join([part.copy() for part in np.split(allowed.mask, self.starts[1:-1])])
        joined.tell(allowed.expression)
        return joined.parts if isinstance(joined, SegmentMask) else (joined,)


def _mask_without(size: int, gone: NDArray[np.int64]) -> RowMask | None:
    if not len(gone):
        return None
    alive = np.ones(size, np.bool_)
    alive[gone] = False
    return RowMask(alive)


@dataclass(frozen=True, slots=True, eq=False)
class Segments(Generic[S]):
    """A component's readers, one for each segment; rows are numbered over all of them."""

    name: str  # of the version, for messages
    readers: tuple[S, ...]  # of the base, and of what was added since
    layout: RowLayout  # of the component's own rows
    documents: RowLayout  # of documents; the same, unless the component's rows are passages
    order: NDArray[np.uint32]  # uint32 [n], the rank of each document's id among all; of one segment: empty

    def __len__(self) -> int:
        return len(self.layout)

    @property
    def only(self) -> S | None:
        """The reader of the only segment; None if there are several, or deleted rows."""
        return self.readers[0] if len(self.readers) == 1 and self.documents.alive[0] is None else None

    def gather(
        self, rows: NDArray[np.int64], read: Callable[[S, NDArray[np.int64]], NDArray[Scalar]]
    ) -> NDArray[Scalar]:
        """Results of `read` for rows of all segments, int64 [m] -> [m, ...], in their order."""
        parts = [(places, read(self.readers[at], own)) for at, own, places in self.layout.split_rows(rows)]
        if not parts:
            return read(self.readers[0], rows)
        items = np.empty((len(rows), *parts[0][1].shape[1:]), parts[0][1].dtype)
        for places, values in parts:
            items[places] = values
        return items

    def owner(self, row: int) -> tuple[S, int]:
        """The reader that has a row, and the row's number there."""
        segment = int(np.searchsorted(self.layout.starts, row, "right")) - 1
        return self.readers[segment], row - int(self.layout.starts[segment])

    def collect(self, rows: Sequence[int], read: Callable[[S, list[int]], list[Item]]) -> list[Item]:
        """As `gather`, for results that are not arrays."""
        items: dict[int, Item] = {}
        for segment, own, places in self.layout.split_rows(np.array(rows, np.int64)):
            items.update(zip(places.tolist(), read(self.readers[segment], own.tolist()), strict=True))
        return [items[place] for place in range(len(rows))]

    def search(
        self,
        # Searches one reader: allowed rows, ranks of its rows -> scores and rows [..., k']
        find: Callable[[S, RowMask | None, NDArray[np.uint32] | None], Ranking],
        k: int,
        allowed: RowMask | None,  # rows of all segments; None: all
        order: NDArray[np.uint32] | None,  # ranks of all rows, which break ties; None: by row
    ) -> Ranking:
        """The k best of all segments, without deleted rows."""
        rankings = []
        for start, reader, mask in zip(
            self.layout.starts.tolist(), self.readers, self.layout.split(allowed), strict=False
        ):
            scores, rows = find(reader, mask, None if order is None else order[start:])
            rankings.append((scores, np.where(rows < 0, rows, rows + start)))
        scores, rows = (np.concatenate(columns, axis=-1) for columns in zip(*rankings, strict=True))
        # Row -1, which fills missing hits, has the score -inf: it comes last with any rank.
        places = np.lexsort((rows if order is None else order[rows], -scores), axis=-1)[..., :k]
        return np.take_along_axis(scores, places, -1), np.take_along_axis(rows, places, -1)
