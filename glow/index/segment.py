"""A segment of an index: one folder of files, and what was opened of them; and what searches ask of it.

n   documents       v   vectors: n, or the passages of n documents      m   rows that are asked for
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.artifact import FileKey
from glow.errors import MismatchError
from glow.runtime import Device

__all__ = ["DELTA", "Files", "Key", "MergeSource", "Per", "Rows", "Segment", "View"]

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
