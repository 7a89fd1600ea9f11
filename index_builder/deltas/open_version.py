"""The live version as `upsert`, `delete` and `compact` see it: opened by parts, without what only searches need."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.artifact import RERANKER_FOLDER, IndexRoot, Manifest, learned_hash
from glow.errors import MismatchError
from glow.index import (
    DOCUMENTS_FILE,
    MODEL_FOLDER,
    STEMS_FOLDER,
    TERMS_FOLDER,
    DocumentsView,
    Segments,
    StoredVectors,
    open_dense,
    open_states,
)
from glow.index.columns import COLUMNS_FOLDER, COLUMNS_HEADER, ORDER_FILE
from glow.index.delta import DELTA_FOLDER, DELTA_HEADER, Delta, DeltaBase, SegmentedDocuments, SegmentSlice
from glow.index.learned_sparse import LEARNED_WORDS_FOLDER, open_learned
from glow.index.passages import PASSAGES_FOLDER, PassageMap
from glow.index.postings import IMPACTS_FOLDER, IMPACTS_HEADER, ImpactIndex, read_impacts_header
from glow.index.spelling import SPELLING_FOLDER, SPELLING_HEADER, SpellingTable
from glow.index.stored_fields import DocumentStore
from glow.index.token_embeddings import TermStates
from glow.runtime import Model
from glow.storage import map_array
from glow.text import Preprocessor, TermTable, load_preprocessor
from glow_index_builder.deltas.segment import Rules
from glow_index_builder.encoding import (
    LearnedEncoder,
    LearnedJob,
    StatesEncoder,
    StatesJob,
    batch_tokens,
)

__all__ = ["OpenVersion"]


@dataclass(frozen=True, eq=False)
class OpenVersion:
    """A version that was verified when it was published.

    Attributes:
        folder: where it lies.
        manifest: its manifest.
        base: documents of the base.
        delta: what changed since; None where nothing did.
    """

    folder: Path
    manifest: Manifest
    base: DocumentStore
    delta: Delta | None

    @classmethod
    def open(cls, root: IndexRoot) -> "OpenVersion":
        """Opens what CURRENT names.

        Raises:
            ArtifactError: if nothing is published, or it is damaged.
        """
        version = root.current()
        folder, manifest = root.folder(version), root.manifest(version)
        delta = Delta.open(folder, manifest.files) if DELTA_HEADER in manifest.files else None
        return cls(folder, manifest, DocumentStore(folder / DOCUMENTS_FILE), delta)

    @cached_property
    def preprocessor(self) -> Preprocessor:
        """With the index's own term table.

        Raises:
            MismatchError: if the table is not the manifest's.
        """
        terms = TermTable.load(self.folder / TERMS_FOLDER)
        if terms.hash != self.manifest.hashes.get("terms"):
            raise MismatchError(
                f"term table of {self.folder.name} is not that of its manifest; rebuild the index"
            )
        return load_preprocessor(self.folder / MODEL_FOLDER, terms)

    @cached_property
    def tombstones(self) -> NDArray[np.int64]:
        """Rows of the base that are gone already, ascending."""
        return np.empty(0, np.int64) if self.delta is None else self.delta.tombstones

    @cached_property
    def dense(self) -> StoredVectors:
        """The base's vectors."""
        return open_dense(self.folder)

    @cached_property
    def documents(self) -> DocumentsView:
        """What can be found now."""
        if self.delta is None:
            return self.base
        segments = Segments(self.base.count, self.delta.documents.count, self.tombstones)
        return SegmentedDocuments(self.base, self.delta.documents, segments)

    @cached_property
    def passages(self) -> PassageMap | None:
        """Where the base's bodies are cut."""
        if "passages" not in self.manifest.counts:
            return None
        return PassageMap.open(self.folder / PASSAGES_FOLDER)

    @property
    def rules(self) -> Rules:
        """How the index treats documents."""
        has_impacts = f"{IMPACTS_FOLDER}/{IMPACTS_HEADER}" in self.manifest.files
        impacts = read_impacts_header(self.folder / IMPACTS_FOLDER) if has_impacts else None
        has_stems = impacts is not None and impacts.analyzer != "plain"
        return Rules(
            self.preprocessor,
            impacts,
            TermTable.load(self.folder / STEMS_FOLDER) if has_stems else self.preprocessor.terms,
            None if self.passages is None else self.passages.header,
            self.manifest.counts["dimensions"],
            self.states.header.model_copy(update={"documents": 0, "tokens": 0}) if self.states else None,
            self.learned.header if self.learned else None,
        )

    @cached_property
    def states(self) -> TermStates | None:
        """Term representations of the base; None where it has none.

        Raises:
            ArtifactError: if they are damaged, or made by another re-ranker than the version's.
        """
        rows = self.base.count if self.passages is None else len(self.passages)
        return open_states(self.folder, self.manifest, rows)

    @cached_property
    def learned(self) -> ImpactIndex | None:
        """Learned impacts of the base; None where it has none.

        Raises:
            ArtifactError: if they are damaged.
        """
        return open_learned(self.folder, self.manifest, self.base.count)

    def learned_encoder(self, model: Model) -> LearnedEncoder | None:
        """What makes learned impacts of documents, by a model with the head of the version's; None where it has none.

        Raises:
            MismatchError: if the model has another head, or none.
        """
        if self.learned is None:
            return None
        digest, expected = learned_hash(model.manifest.files), self.manifest.hashes.get("learned")
        if digest != expected:
            raise MismatchError(
                f"model {model.label} makes other learned impacts than {self.folder.name} has: expected the hash "
                f"{(expected or 'none')[:8]}, found {(digest or 'none')[:8]}; give the model that built it with --model"
            )
        header = self.learned.header
        job = LearnedJob(self.folder / LEARNED_WORDS_FOLDER, int(header.parameters["budget"]), header.unit)
        return LearnedEncoder.open(model, job, "cpu", batch_tokens("cpu"))

    def states_encoder(self) -> StatesEncoder | None:
        """What reads documents for the re-ranker, by the version's own copy of it; None where it has none."""
        if self.states is None:
            return None
        job = StatesJob(self.folder / RERANKER_FOLDER, self.states.header.bits)
        return StatesEncoder.open(job, self.preprocessor.terms)

    def delta_base(self) -> DeltaBase:
        """What a delta must know."""
        order = None
        if f"{COLUMNS_FOLDER}/{COLUMNS_HEADER}" in self.manifest.files:
            order = map_array(self.folder / COLUMNS_FOLDER / ORDER_FILE, np.uint32, self.base.count)
        vectors = self.base.count if self.passages is None else len(self.passages)
        return DeltaBase(self.base, vectors, self.manifest.counts["dimensions"], order)

    def slice_of_delta(self, mask: NDArray[np.bool_]) -> SegmentSlice | None:
        """The delta, of which some documents stay; None where there is none."""
        if self.delta is None:
            return None
        delta = self.delta
        return SegmentSlice(
            delta.documents,
            delta.dense.reader(),
            delta.impacts,
            delta.passages,
            delta.spelling,
            delta.states,
            delta.learned,
            mask,
        )

    def whole_delta(self) -> SegmentSlice | None:
        """The delta, all of it."""
        if self.delta is None:
            return None
        return self.slice_of_delta(np.ones(self.delta.documents.count, np.bool_))

    def slice_of_base(self) -> SegmentSlice:
        """What is left of the base; with every part that a segment has."""
        mask = np.ones(self.base.count, np.bool_)
        mask[self.tombstones] = False
        impacts = ImpactIndex.open(self.folder / IMPACTS_FOLDER) if self.rules.impacts else None
        reader = self.dense.reader()
        has_spelling = f"{SPELLING_FOLDER}/{SPELLING_HEADER}" in self.manifest.files
        spelling = SpellingTable.open(self.folder / SPELLING_FOLDER) if has_spelling else None
        return SegmentSlice(
            self.base, reader, impacts, self.passages, spelling, self.states, self.learned, mask
        )

    @staticmethod
    def is_base_file(name: str) -> bool:
        """Whether a file of the version belongs to the base."""
        return not name.startswith(f"{DELTA_FOLDER}/")
