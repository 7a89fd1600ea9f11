"""The live version as `upsert`, `delete` and `compact` see it: its segments, without what only searches need."""

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
    BaseAndDelta,
    Component,
    Delta,
    MergeSource,
    Rows,
    Rules,
    Segment,
    Segments,
    closed_base,
    files_of,
    held_rules,
    open_delta,
)
from glow.index.stored_fields import STORED_FIELDS, DocumentsView
from glow.runtime import Model
from glow.text import Preprocessor, TermTable, load_preprocessor

__all__ = ["OpenVersion"]


@dataclass(frozen=True, eq=False)
class OpenVersion:
    """A version that was verified when it was published.

    Attributes:
        folder: where it lies.
        manifest: its manifest.
        base: of N documents; its components open when they are asked for.
        delta: what changed since, open; None if nothing did.
    """

    folder: Path
    manifest: Manifest
    base: Segment
    delta: Delta | None

    @classmethod
    def open(cls, root: IndexRoot) -> "OpenVersion":
        """Opens what CURRENT names.

        Raises:
            ArtifactError: if nothing is published, or it is damaged.
        """
        version = root.current()
        folder, manifest = root.folder(version), root.manifest(version)
        files = files_of(folder, manifest)
        delta = open_delta(folder, manifest, files)
        return cls(folder, manifest, _open_lazily(closed_base(folder, manifest, files, delta)), delta)

    @cached_property
    def terms(self) -> TermTable:
        """The index's own term table.

        Raises:
            MismatchError: if it is not the manifest's.
        """
        terms = TermTable.load(self.folder / TERMS_FOLDER)
        if terms.hash != self.manifest.hashes.get("terms"):
            raise MismatchError(
                f"term table of {self.folder.name} is not that of its manifest; rebuild the index"
            )
        return terms

    @cached_property
    def preprocessor(self) -> Preprocessor:
        """With that table."""
        return load_preprocessor(self.folder / MODEL_FOLDER, self.terms)

    @cached_property
    def query_side(self) -> Model:
        """What the version holds of its model; it encodes no documents."""
        return Model(
            self.folder / MODEL_FOLDER, self.manifest, self.manifest.hashes["model"], self.preprocessor
        )

    @property
    def tombstones(self) -> NDArray[np.int64]:
        """Rows of the base that are gone already, ascending."""
        return np.empty(0, np.int64) if self.delta is None else self.delta.rows.tombstones

    @property
    def delta_documents(self) -> int:
        """M; 0 without a delta."""
        return 0 if self.delta is None else self.delta.segment.rows.documents

    @cached_property
    def documents(self) -> DocumentsView:
        """What can be found now."""
        base = self.base[STORED_FIELDS]
        if self.delta is None:
            return STORED_FIELDS.alone(base, self.base)
        (rows, segment), gone = self.delta, self.tombstones
        segments = Segments(self.base.rows.documents, segment.rows.documents, gone)
        return STORED_FIELDS.join(
            BaseAndDelta(self.folder.name, base, segment[STORED_FIELDS], segments, gone, rows.order)
        )

    @cached_property
    def rules(self) -> dict[str, Rules]:
        """How what is added to the base is made: name of a component -> its rules."""
        return held_rules(self.base, delta=True)

    def check_model(self, model: Model) -> None:
        """Refuses a model that cannot make what the version has.

        Raises:
            MismatchError: with both hashes.
        """
        if model.hash != self.manifest.hashes.get("model"):
            raise MismatchError(
                f"model {model.label} did not build the live index, {self.folder.name}: expected the hash "
                f"{self.manifest.hashes.get('model', 'none')[:8]}; give that model with --model"
            )
        for component in COMPONENTS:
            if component.name in self.rules:
                component.check_model(self.rules[component.name], model)

    def new_segment(self, folder: Path, documents: int) -> Segment:
        """A delta of the base in the making."""
        base = self.base
        return Segment(
            base.name, folder, base.root, DELTA, base.hashes, base.parameters, None, Rows(documents)
        )

    def kept_of_base(self) -> MergeSource:
        """What is left of the base."""
        live = np.ones(self.base.rows.documents, np.bool_)
        live[self.tombstones] = False
        return MergeSource(self.base, live)


def _open_lazily(segment: Segment) -> Segment:
    """A segment that opens each component when it is first asked for: a change of a few documents needs few of them.

    What cuts documents, which decides the rows, is opened at once.

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
