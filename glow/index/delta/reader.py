"""A version's delta, open, and a base and a delta made into the parts of one index."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import DeviceError, MismatchError
from glow.index.columns import Columns
from glow.index.columns.filters import FilterMasks
from glow.index.delta.format import (
    DELTA_FOLDER,
    DELTA_HEADER,
    HEADER_FILE,
    ORDER_FILE,
    TOMBSTONES_FILE,
    DeltaHeader,
    in_delta,
    read_delta_header,
    read_order,
    read_tombstones,
)
from glow.index.delta.segment_columns import join_columns, segment_masks
from glow.index.delta.segment_parts import (
    SegmentedDense,
    SegmentedDocuments,
    SegmentedImpacts,
    SegmentedLearned,
    SegmentedStates,
)
from glow.index.dense_part import DENSE_FILE, is_elsewhere
from glow.index.learned_sparse import LearnedImpacts
from glow.index.parts import DOCUMENTS_FILE, VersionParts
from glow.index.passages import PASSAGES_FILES, PASSAGES_FOLDER, PassageMap
from glow.index.postings import IMPACTS_FILES, IMPACTS_FOLDER, LEARNED_FILES, LEARNED_FOLDER, ImpactIndex
from glow.index.segments import Segments
from glow.index.spelling import SPELLING_FILES, SPELLING_FOLDER, SpellingTable
from glow.index.stored_fields import DocumentStore
from glow.index.token_embeddings import STATES_FILES, STATES_FOLDER, TermStates
from glow.index.vectors import DenseIndex
from glow.index.views import DenseView, DocumentsView, ImpactsView, LearnedView, StatesView

__all__ = ["Delta", "View", "join", "view_of"]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The parts of an index as searches see them; attributes as for `Index`."""

    dense: DenseView
    documents: DocumentsView
    columns: Columns | None
    impacts: ImpactsView | None
    passages: PassageMap | None
    masks: FilterMasks | None
    states: StatesView | None
    learned: LearnedView | None


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """The folder `delta/` of a version, open; attributes as `delta_format` describes them."""

    header: DeltaHeader
    tombstones: NDArray[np.int64]
    order: NDArray[np.uint32] | None
    dense: DenseIndex
    documents: DocumentStore
    columns: Columns | None
    impacts: ImpactIndex | None
    passages: PassageMap | None
    spelling: SpellingTable | None
    states: TermStates | None
    learned: ImpactIndex | None

    @classmethod
    def open(cls, version: Path, files: Collection[str]) -> "Delta":
        """Opens a version's delta.

        Args:
            version: the version's folder.
            files: its files whose checksums were compared, by their path in it.

        Raises:
            ArtifactError: if a file is missing, damaged, or does not fit the others.
        """
        header, there, folder = read_delta_header(version), in_delta(files), version / DELTA_FOLDER
        for name in (HEADER_FILE, TOMBSTONES_FILE, DENSE_FILE, DOCUMENTS_FILE):
            _require(name, there)
        has_columns, has_impacts, has_passages, has_spelling, has_states, has_learned = (
            any(name.startswith(f"{part}/") for name in there)
            for part in (
                "columns",
                IMPACTS_FOLDER,
                PASSAGES_FOLDER,
                SPELLING_FOLDER,
                STATES_FOLDER,
                LEARNED_FOLDER,
            )
        )
        needed = [
            *([ORDER_FILE] if has_columns else []),
            *(f"{IMPACTS_FOLDER}/{name}" for name in IMPACTS_FILES if has_impacts),
            *(PASSAGES_FILES if has_passages else ()),
            *(f"{SPELLING_FOLDER}/{name}" for name in SPELLING_FILES if has_spelling),
            *(f"{STATES_FOLDER}/{name}" for name in STATES_FILES if has_states),
            *(f"{LEARNED_FOLDER}/{name}" for name in LEARNED_FILES if has_learned),
        ]
        for name in needed:
            _require(name, there)
        delta = cls(
            header,
            read_tombstones(version, header),
            read_order(version, header) if has_columns else None,
            DenseIndex.load(folder / DENSE_FILE),
            DocumentStore(folder / DOCUMENTS_FILE),
            Columns.open(folder, header.documents, there) if has_columns else None,
            ImpactIndex.open(folder / IMPACTS_FOLDER) if has_impacts else None,
            PassageMap.open(folder / PASSAGES_FOLDER) if has_passages else None,
            SpellingTable.open(folder / SPELLING_FOLDER) if has_spelling else None,
            TermStates.open(folder / STATES_FOLDER, header.vectors) if has_states else None,
            ImpactIndex.open(folder / LEARNED_FOLDER) if has_learned else None,
        )
        delta._check()
        return delta

    def _check(self) -> None:
        header = self.header
        documents, vectors = {self.documents.count}, {len(self.dense)}
        if self.impacts is not None:
            documents.add(len(self.impacts))
        if self.learned is not None:
            documents.add(len(self.learned))
        if self.passages is not None:
            documents.add(self.passages.header.documents)
        vectors.add(header.documents if self.passages is None else len(self.passages))
        if documents != {header.documents} or vectors != {header.vectors} or self.dense.kind != "flat":
            raise MismatchError(
                f"{DELTA_FOLDER}/ holds {sorted(documents)} documents and {sorted(vectors)} vectors ({self.dense.kind}), "
                f"{DELTA_HEADER} says {header.documents} and {header.vectors} (flat); roll back to an older version"
            )


def _together(bm25: ImpactIndex | None, learned: ImpactIndex | None, weight: float) -> LearnedImpacts | None:
    return LearnedImpacts(bm25, learned, weight) if bm25 is not None and learned is not None else None


def view_of(base: VersionParts, weight: float = 1.0) -> View:
    """A version without a delta: its parts as they are; `weight` as for `join`."""
    masks = (
        None if base.columns is None else FilterMasks(base.columns, tells_filters=is_elsewhere(base.dense))
    )
    learned = _together(base.impacts, base.learned, weight)
    return View(
        base.dense, base.documents, base.columns, base.impacts, base.passages, masks, base.states, learned
    )


def join(name: str, base: VersionParts, delta: Delta, weight: float = 1.0) -> View:
    """A base and a delta as one.

    Args:
        name: of the version, for messages.
        base, delta: the parts of both.
        weight: of learned impacts beside BM25's.

    Raises:
        MismatchError: if they do not belong together.
        DeviceError: if the base is on a GPU, where what is gone cannot be left out.
    """
    _check_fit(name, base, delta)
    if base.dense.device != "cpu":
        raise DeviceError(
            f"index {name} has a delta, which cannot be searched on a GPU; run `glow compact`, or "
            "serve with --device cpu"
        )
    documents = Segments(base.documents.count, delta.documents.count, delta.tombstones)
    vectors = documents
    passages = None
    if base.passages is not None and delta.passages is not None:
        passages = base.passages.followed_by(delta.passages, delta.order)
        gone = np.flatnonzero(np.isin(base.passages.documents, delta.tombstones))
        vectors = Segments(len(base.dense), len(delta.dense), gone)
    columns = masks = None
    if base.columns is not None and delta.columns is not None and delta.order is not None:
        columns = join_columns(base.columns, delta.columns, delta.tombstones, delta.order)
        masks = segment_masks(columns, documents, tells_filters=is_elsewhere(base.dense))
    impacts = None
    if base.impacts is not None and delta.impacts is not None:
        impacts = SegmentedImpacts(base.impacts, delta.impacts, documents)
    states = None
    if base.states is not None and delta.states is not None:
        states = SegmentedStates(base.states, delta.states)
    learned = None
    old, new = (_together(part.impacts, part.learned, weight) for part in (base, delta))
    if old is not None and new is not None:
        learned = SegmentedLearned(old, new, documents)
    return View(
        SegmentedDense(base.dense, delta.dense, vectors),
        SegmentedDocuments(base.documents, delta.documents, documents),
        columns,
        impacts,
        passages,
        masks,
        states,
        learned,
    )


def _require(name: str, there: Collection[str]) -> None:
    if name not in there:
        raise MismatchError(f"the manifest lacks {DELTA_FOLDER}/{name}; roll back to an older version")


def _check_fit(name: str, base: VersionParts, delta: Delta) -> None:
    """Both have the same parts, and the delta was made for a base of this size."""
    parts = {
        "columns": (base.columns, delta.columns),
        "impacts": (base.impacts, delta.impacts),
        "passages": (base.passages, delta.passages),
        "term representations": (base.states, delta.states),
        "learned impacts": (base.learned, delta.learned),
    }
    for part, (old, new) in parts.items():
        if (old is None) != (new is None):
            raise MismatchError(
                f"index {name}: {part} in its {'delta' if old is None else 'base'} alone; roll back to its base"
            )
    if base.impacts is not None and delta.impacts is not None:
        names = base.impacts.analyzer.name, delta.impacts.analyzer.name
        if names[0] != names[1]:
            raise MismatchError(
                f"index {name}: words of its base by the analyzer {names[0]}, of its delta by {names[1]}; roll back to its base"
            )
    if base.learned is not None and delta.learned is not None:
        units = base.learned.header.unit, delta.learned.header.unit
        if units[0] != units[1]:
            raise MismatchError(
                f"index {name}: learned impacts of its base in the unit {units[0]:g}, of its delta in {units[1]:g}; "
                "roll back to its base"
            )
    if base.states is not None and delta.states is not None:
        delta.states.require_like(base.states.header)
    if delta.dense.dimensions != base.dense.dimensions:
        raise MismatchError(
            f"index {name}: vectors of {delta.dense.dimensions} dimensions in its delta, {base.dense.dimensions} in "
            "its base; roll back to its base"
        )
