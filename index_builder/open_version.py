"""The live version for `upsert`, `delete`, `compact` and `build`: its segments, without the data that only searches need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import IndexRoot, Manifest
from glow.errors import MismatchError
from glow.index import (
    COMPONENTS,
    DELTA,
    MODEL_FOLDER,
    TERMS_FOLDER,
    Component,
    Delta,
    RowLayout,
    Rows,
    Rules,
    Segment,
    Segments,
    closed_base,
    existing_rules,
    files_of,
    open_component,
    open_delta,
)
from glow.index.stored_fields import STORED_FIELDS, DocumentsView
from glow.runtime import Model
from glow.text import Preprocessor, TermTable, load_preprocessor


@dataclass(frozen=True, eq=False)
class OpenVersion:
    """A version that was verified when it was published."""

    folder: Path
    manifest: Manifest
    base: Segment  # N documents; its components are opened on first use
    delta: Delta | None  # the changes since, open; None without changes

    @classmethod
    def open(cls, root: IndexRoot, version: str | None = None) -> "OpenVersion":
        """Opens a version, by default the one that CURRENT names."""
        version = version or root.current()
        folder, manifest = root.folder(version), root.manifest(version)
        files = files_of(folder, manifest)
        delta = open_delta(folder, manifest, files)
        return cls(folder, manifest, _open_lazily(closed_base(folder, manifest, files, delta)), delta)

    @cached_property
    def terms(self) -> TermTable:
        """The index's own term statistics."""
        terms = TermTable.load(self.folder / TERMS_FOLDER)
        if terms.hash != self.manifest.hashes.get("terms"):
            raise MismatchError(
                f"the term statistics of {self.folder.name} do not match its manifest; rebuild the index"
            )
        return terms

    @cached_property
    def preprocessor(self) -> Preprocessor:
        """The model's preprocessor with these term statistics."""
        return load_preprocessor(self.folder / MODEL_FOLDER, self.terms)

    @property
    def tombstones(self) -> NDArray[np.int64]:
        """Deleted or replaced rows of the base, ascending."""
        return np.empty(0, np.int64) if self.delta is None else self.delta.rows.tombstones

    @cached_property
    def documents(self) -> DocumentsView:
        """The documents that searches can find."""
        if self.delta is None:
            return self.base[STORED_FIELDS]
        (rows, segment), name = self.delta, self.folder.name
        layout = RowLayout([self.base.rows.documents, segment.rows.documents], rows.tombstones)
        readers = (self.base[STORED_FIELDS], segment[STORED_FIELDS])
        return STORED_FIELDS.reader(Segments(name, readers, layout, layout, rows.order))

    @cached_property
    def rules(self) -> dict[str, Rules]:
        """Name of a component -> the rules that new documents are built with."""
        return existing_rules(self.base, delta=True)

    def check_model(self, model: Model) -> None:
        """Refuses a model other than the one that built the version."""
        if model.hash != self.manifest.hashes.get("model"):
            raise MismatchError(
                f"model {model.label} did not build the live index, {self.folder.name}: expected the hash "
                f"{self.manifest.hashes.get('model', 'none')[:8]}; give that model with --model"
            )
        for component in COMPONENTS:
            if component.name in self.rules:
                component.check_model(self.rules[component.name], model)

    def new_segment(self, folder: Path, documents: int) -> Segment:
        """Creates an empty delta of the base, to be filled."""
        base = self.base
        return Segment(
            base.name, folder, base.root, DELTA, base.hashes, base.parameters, None, Rows(documents)
        )


def _open_lazily(segment: Segment) -> Segment:
    """Makes a segment open each component on first use: a change of a few documents needs few of them.

    The component that cuts documents into passages decides the rows, and is opened at once.
    """
    readers = _Readers(segment)
    for component in COMPONENTS:
        if type(component).first is not Component.first and component.name in readers:
            rows = Rows(segment.rows.documents, component.first(readers[component.name]))
            readers.segment = replace(readers.segment, rows=rows)
    return readers.segment


class _Readers(Mapping[str, Any]):
    """Name of a component -> its reader."""

    def __init__(self, segment: Segment) -> None:
        self.segment = replace(segment, readers=self)
        self._opened: dict[str, Any] = {}
        self._components = {component.name: component for component in COMPONENTS}

    def __getitem__(self, name: str) -> Any:
        if name not in self._opened:
            self._opened[name] = open_component(self._components[name], self.segment)
        reader = self._opened[name]
        if reader is None:
            raise KeyError(name)
        return reader

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._components if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
