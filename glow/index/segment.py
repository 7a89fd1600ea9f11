"""A segment of an index: one folder of files, and what was opened of them; and a base and a delta seen as one.

n   documents       v   vectors: n, or the passages of n documents      m   rows that are asked for
N, M   documents of base and delta
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.artifact import FileKey
from glow.errors import MismatchError
from glow.index.ranking import Ranking
from glow.index.row_mask import RowMask
from glow.index.segments import Segments
from glow.runtime import Device

__all__ = ["DELTA", "BaseAndDelta", "Files", "Key", "MergeSource", "Per", "Rows", "Segment", "View"]

S = TypeVar("S")
"""What one segment's files are opened as; it answers as an R does, and gives what `merge` copies."""
R = TypeVar("R")
"""What searches ask, of one segment or of a base and its delta."""
Item = TypeVar("Item")
Scalar = TypeVar("Scalar", bound=np.generic)
Per = Literal["document", "vector", "index"]
Files = Mapping[str, tuple[FileKey, str]]
"""Path -> which file it is, and its SHA-256."""
DELTA = "delta/"


class Key(Generic[S, R]):
    """What a component's readers are found by.

    Attributes:
        name: of the component.
        label: the component in messages.
    """

    name: ClassVar[str]
    label: ClassVar[str]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of a segment, or of a base and its delta.

    Attributes:
        documents: n.
        first: uint32 [n + 1], the first vector of each document, and v; None: row i is document i.
    """

    documents: int
    first: NDArray[np.uint32] | None = None

    def count(self, per: Per) -> int:
        """Rows of a component: n, or v."""
        return int(self.first[-1]) if per == "vector" and self.first is not None else self.documents

    def held(self, per: Per, live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """A component's rows of the documents that stay, bool [n] -> int64, ascending."""
        if per == "document" or self.first is None:
            return np.flatnonzero(live)
        return np.flatnonzero(np.repeat(live, np.diff(self.first)))


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A base, a delta, or documents in the making: one folder, and what was opened of it so far.

    Attributes:
        name: of the version, for messages.
        folder: where its files lie, or are written.
        root: the version's folder, or for a delta in the making its base's; what both share lies there (`reranker/`, `learned-words/`).
        below: "" for a base, `DELTA` for a delta.
        hashes, parameters: of the version's manifest.
        files: the verified ones, by their paths in the folder; None: the segment is in the making.
        rows: of it; the vectors are known once what cuts documents is open.
        device: where vectors are searched.
        readers: name of a component -> its reader.
        earlier: folders of the steps before, of a build: each keeps its own, so that a build can go on.
    """

    name: str
    folder: Path
    root: Path
    below: str
    hashes: Mapping[str, str]
    parameters: Mapping[str, Any]
    files: Files | None
    rows: Rows
    device: Device = "cpu"
    readers: Mapping[str, Any] = field(default_factory=dict)
    earlier: tuple[Path, ...] = ()

    @property
    def remedy(self) -> str:
        """What to do about a damaged one."""
        return "roll back to an older version" if self.below else "rebuild the index"

    def path(self, name: str) -> Path:
        """Where a file or folder lies."""
        places = (folder / name for folder in (self.folder, *self.earlier))
        return next((place for place in places if place.exists()), self.folder / name)

    def has(self, path: str) -> bool:
        """Whether a file was verified, or lies there if the segment is in the making."""
        return self.path(path).is_file() if self.files is None else path in self.files

    def has_any(self, paths: Sequence[str]) -> bool:
        """Whether there is any file below some paths."""
        if self.files is None:
            return any(self.path(path).exists() for path in paths)
        return any(name.startswith(tuple(paths)) for name in self.files)

    def require(self, *paths: str) -> None:
        """Refuses to open what is not in the manifest.

        Raises:
            MismatchError: with the first that is missing.
        """
        for path in paths:
            if not self.has(path):
                lacks = f"manifest lacks {self.below}{path}; {self.remedy}"
                raise MismatchError(f"the {lacks}" if self.below else f"index {self.name}: its {lacks}")

    def get(self, component: Key[S, Any]) -> S | None:
        """A component's reader; None if the segment has no such component."""
        reader: S | None = self.readers.get(component.name)
        return reader

    def __getitem__(self, component: Key[S, Any]) -> S:
        """A component's reader.

        Raises:
            MismatchError: if the segment has no such component.
        """
        reader = self.get(component)
        if reader is None:
            raise MismatchError(f"index {self.name} has no {component.label}; {self.remedy}")
        return reader

    def with_reader(
        self, component: Key[S, Any], reader: S, first: NDArray[np.uint32] | None = None
    ) -> "Segment":
        """The same with one more component open.

        Args:
            component, reader: the component.
            first: of `Rows`, if the component cuts documents; None: rows stay as they are.
        """
        rows = self.rows if first is None else Rows(self.rows.documents, first)
        return replace(self, rows=rows, readers={**self.readers, component.name: reader})

    def shares(self, other: "Segment", paths: Sequence[str]) -> bool:
        """Whether another segment has the very same files below some paths, and is searched on the same device."""
        mine, theirs = (
            {name: key for name, key in (each.files or {}).items() if name.startswith(tuple(paths))}
            for each in (self, other)
        )
        return mine == theirs and self.device == other.device and self.below == other.below


class MergeSource(NamedTuple):
    """A segment, and which of its documents stay: bool [n]."""

    segment: Segment
    live: NDArray[np.bool_]

    @property
    def documents(self) -> int:
        """How many stay."""
        return int(np.count_nonzero(self.live))

    def rows(self, per: Per) -> NDArray[np.int64]:
        """A component's rows that stay, int64, ascending."""
        return self.segment.rows.held(per, self.live)


@dataclass(frozen=True, slots=True, eq=False)
class BaseAndDelta(Generic[S]):
    """The readers of a base and its delta; row N + i is row i of the delta.

    Attributes:
        name: of the version, for messages.
        base, delta: the readers.
        segments: rows of both, and which of the base are gone, in the component's own rows.
        tombstones: documents of the base that are gone, int64 [t], ascending.
        order: uint32 [N + M], the rank of each document's id, of both together.
    """

    name: str
    base: S
    delta: S
    segments: Segments
    tombstones: NDArray[np.int64]
    order: NDArray[np.uint32]

    def gather(
        self, rows: NDArray[np.int64], read: Callable[[S, NDArray[np.int64]], NDArray[Scalar]]
    ) -> NDArray[Scalar]:
        """What `read` says of rows of both, int64 [m] -> [m, ...], in their order."""
        is_new = rows >= self.segments.base
        old, new = read(self.base, rows[~is_new]), read(self.delta, rows[is_new] - self.segments.base)
        found = np.empty((len(rows), *new.shape[1:]), new.dtype)
        found[~is_new], found[is_new] = old, new
        return found

    def owner(self, row: int) -> tuple[S, int]:
        """The reader of a row, and the row there."""
        first = self.segments.base
        return (self.base, row) if row < first else (self.delta, row - first)

    def collect(self, rows: Sequence[int], read: Callable[[S, list[int]], list[Item]]) -> list[Item]:
        """As `gather`, of what is no array."""
        first = self.segments.base
        old = iter(read(self.base, [row for row in rows if row < first]))
        new = iter(read(self.delta, [row - first for row in rows if row >= first]))
        return [next(old if row < first else new) for row in rows]

    def search(
        self,
        find: Callable[[S, RowMask | None, NDArray[np.uint32] | None], Ranking],
        k: int,
        allowed: RowMask | None,
        order: NDArray[np.uint32] | None,
    ) -> Ranking:
        """The k best of both, without what is gone.

        Args:
            find: searches one reader: allowed rows, ranks of its rows -> scores and rows [..., k'].
            k: hits.
            allowed: rows of both; None: all.
            order: ranks of the rows of both, which break ties; None: by row.
        """
        base, delta = self.segments.split(allowed)
        later = None if order is None else order[self.segments.base :]
        (old_scores, old_rows), (new_scores, new_rows) = (
            find(self.base, base, order),
            find(self.delta, delta, later),
        )
        scores = np.concatenate([old_scores, new_scores], axis=-1)
        rows = np.concatenate([old_rows, new_rows + self.segments.base], axis=-1)
        # Row -1, which fills up, has the score -inf: it stands last whatever its rank is.
        places = np.lexsort((rows if order is None else order[rows], -scores), axis=-1)[..., :k]
        return np.take_along_axis(scores, places, -1), np.take_along_axis(rows, places, -1)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What searches ask: the components of a base and its delta as one, or of a base alone.

    Attributes:
        name: of the version, for messages.
        rows: of both.
        readers: name of a component -> its reader.
    """

    name: str
    rows: Rows
    readers: Mapping[str, Any]

    def holds(self, component: Key[Any, Any]) -> bool:
        """Whether the index has a component."""
        return component.name in self.readers

    def get(self, component: Key[Any, R]) -> R | None:
        """A component's reader; None if the index has no such component."""
        reader: R | None = self.readers.get(component.name)
        return reader

    def __getitem__(self, component: Key[Any, R]) -> R:
        """A component's reader.

        Raises:
            MismatchError: if the index has no such component; who asks has seen to it that it is not so.
        """
        reader = self.get(component)
        if reader is None:
            raise MismatchError(f"index {self.name} has no {component.label}; rebuild the index")
        return reader
