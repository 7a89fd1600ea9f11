"""A segment whose components are opened when they are first asked for: a change of a few documents needs few of them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.index import COMPONENTS, Component, Rows, Segment

__all__ = ["open_lazily"]


def open_lazily(segment: Segment) -> Segment:
    """A segment that opens each component when it is first asked for, and at once what cuts documents, which decides the rows.

    Args:
        segment: verified before; none of its components is open.

    Raises:
        ArtifactError: as `Component.open`; of the other components, when they are asked for.
    """
    readers = _Readers(segment)
    for component in COMPONENTS:
        if type(component).first is not Component.first and component.name in readers:
            readers.cut(component.first(readers[component.name]))
    return readers.segment


class _Readers(Mapping[str, Any]):
    """Name of a component -> its reader.

    Args:
        segment: whose they are.

    Attributes:
        segment: the same, with these readers.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = replace(segment, readers=self)
        self._opened: dict[str, Any] = {}
        self._components = {component.name: component for component in COMPONENTS}

    def cut(self, first: NDArray[np.uint32] | None) -> None:
        """Says which vectors are whose; arguments as for `Rows`."""
        self.segment = replace(self.segment, rows=Rows(self.segment.rows.documents, first))

    def __getitem__(self, name: str) -> Any:
        if name not in self._opened:
            self._opened[name] = self._components[name].open(self.segment)
        reader = self._opened[name]
        if reader is None:
            raise KeyError(name)
        return reader

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._components if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
