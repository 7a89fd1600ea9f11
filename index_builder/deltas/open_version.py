"""The live version as `upsert`, `delete` and `compact` see it: its segments, without what only searches need."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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
from glow_index_builder.deltas.lazy import open_lazily

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
        return cls(folder, manifest, open_lazily(closed_base(folder, manifest, files, delta)), delta)

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
