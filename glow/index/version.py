"""An index version, open: everything that a search needs, verified to belong together."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.artifact import Manifest, verify
from glow.errors import MismatchError
from glow.index.columns import Columns
from glow.index.columns.filters import FilterMasks
from glow.index.delta import DELTA_HEADER, Delta, DeltaHeader, join, read_delta_header, view_of
from glow.index.dense_part import DENSE_FILE
from glow.index.learned_sparse import open_learned_weight
from glow.index.parts import (
    DOCUMENTS_FILE,
    MODEL_FOLDER,
    REPORT_FILE,
    STEMS_FOLDER,
    TERMS_FOLDER,
    Rows,
    VersionParts,
    model_parent,
    open_parts,
)
from glow.index.passages import PassageMap
from glow.index.settings import DEFAULT_FUSION, DEFAULT_MIXTURE, Fusion, Mixture, load_fusion, load_mixture
from glow.index.spelling import Speller
from glow.index.views import DenseView, DocumentsView, ImpactsView, LearnedView, StatesView
from glow.runtime import Device, Encoder, Explainer, Reranker
from glow.text import Analyzer, Preprocessor

__all__ = [
    "DENSE_FILE",
    "DOCUMENTS_FILE",
    "MODEL_FOLDER",
    "REPORT_FILE",
    "STEMS_FOLDER",
    "TERMS_FOLDER",
    "Index",
]


PLAIN = Analyzer()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Index:
    """One version of an index, immutable and safe to search from many threads.

    Where the version has a delta, the parts are those of base and delta together (`glow.index.segments`).

    Attributes:
        manifest: what the version says of itself; `manifest.name` is the version.
        preprocessor: with the index's own term table.
        encoder: the query tower.
        dense: the vectors.
        documents: fields and metadata.
        columns: metadata to filter and count by; None in a version of an older GLOW.
        impacts: the lexical index; None in a version that was built without.
        fusion: how a hybrid search fuses, unless a request says otherwise.
        passages: which document each row of `dense` is a part of; None: row i is document i.
        explainer: says why, opened when it is first asked; None in a version without explain graphs.
        masks: which rows a filter allows; None where `columns` is.
        parts: the files outside the delta as they were opened, for `open` of a version that shares some.
        delta: what changed since the base; None where nothing did.
        speller: knows the index' words and corrects those of queries; None in a version that was built without words.
        reranker, states: what reads hits again, and what it made of documents beforehand; None in a version that was built without.
        mixture: how much its score counts.
        learned: learned impacts with those of `impacts`; None in a version that was built without.
    """

    manifest: Manifest
    preprocessor: Preprocessor
    encoder: Encoder
    dense: DenseView
    documents: DocumentsView
    columns: Columns | None = None
    impacts: ImpactsView | None = None
    fusion: Fusion = DEFAULT_FUSION
    passages: PassageMap | None = None
    explainer: Explainer | None = None
    masks: FilterMasks | None = None
    parts: VersionParts | None = None
    delta: Delta | None = None
    speller: Speller | None = None
    reranker: Reranker | None = None
    states: StatesView | None = None
    mixture: Mixture = DEFAULT_MIXTURE
    learned: LearnedView | None = None

    @classmethod
    def open(
        cls, folder: Path, device: Device = "cpu", threads: int = 1, like: "Index | None" = None
    ) -> "Index":
        """Verifies every file of a version, then opens it.

        Args:
            folder: the version's folder.
            device: where the query tower and the vectors live.
            threads: threads of one encoding.
            like: an open index, on the same device with as many threads. What both versions have as the same files
                (hard links) is taken from it, neither read nor opened again, and shared from then on.

        Raises:
            ArtifactError: if missing or damaged (the file is named), or parts that do not belong together.
            DeviceError: if the device is not there, or the version has a delta and the device is a GPU.
        """
        old = like.parts if like is not None else None
        manifest = verify(folder, "index", old.known if old is not None else None)
        header = read_delta_header(folder) if DELTA_HEADER in manifest.files else None
        base = open_parts(folder, manifest, _rows(manifest, header), device, threads, old)
        delta = Delta.open(folder, manifest.files) if header is not None else None
        weight = open_learned_weight(folder, manifest)
        view = view_of(base, weight) if delta is None else join(manifest.name, base, delta, weight)
        if view.documents.count != manifest.counts.get("documents"):
            raise MismatchError(
                f"index {manifest.name}: {view.documents.count} documents of base and delta, "
                f"{manifest.counts.get('documents')} in the manifest; roll back to its base"
            )
        return cls(
            manifest,
            base.preprocessor,
            base.encoder,
            view.dense,
            view.documents,
            view.columns,
            view.impacts,
            load_fusion(folder, manifest),
            view.passages,
            base.explainer,
            view.masks,
            base,
            delta,
            _open_speller(base, delta, view.impacts),
            base.reranker,
            view.states,
            load_mixture(folder, manifest),
            view.learned,
        )

    @property
    def version(self) -> str:
        """The version's name."""
        return self.manifest.name

    @property
    def analyzer(self) -> Analyzer:
        """Makes the terms of its lexical index; in an index without words they stay as they are."""
        return PLAIN if self.impacts is None else self.impacts.analyzer

    @property
    def order(self) -> NDArray[np.uint32] | None:
        """The rank of each row's id in code point order, which breaks ties; None in a version of an older GLOW."""
        return self.columns.order if self.columns else None

    @property
    def model(self) -> str:
        """Name and short hash of the model that built it: `glow-mini@sha256:ab12cd34`."""
        name = model_parent(self.manifest).get("name", "unknown")
        return f"{name}@sha256:{self.manifest.hashes.get('model', '')[:8]}"


def _rows(manifest: Manifest, header: DeltaHeader | None) -> Rows:
    """Rows of the files outside the delta."""
    if header is None:
        return Rows(manifest.counts.get("documents"), manifest.counts.get("passages"))
    has_passages = "passages" in manifest.counts
    return Rows(header.base_documents, header.base_vectors if has_passages else None)


def _open_speller(base: VersionParts, delta: Delta | None, impacts: ImpactsView | None) -> Speller | None:
    preprocessor = base.preprocessor
    if base.spelling is None or preprocessor.weighting.unit != "word":
        return None
    tables = [base.spelling, *([delta.spelling] if delta is not None and delta.spelling is not None else [])]
    return Speller(preprocessor.pieces, preprocessor.terms, tables, impacts)
