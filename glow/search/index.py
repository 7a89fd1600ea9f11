"""An index version, open: everything that a search needs, verified to belong together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import Manifest, verify
from glow.artifact.model import EXPLAIN_FILES, QUERY_SIDE_FILES, QUERY_TOWER
from glow.errors import ConfigError, FormatError, MismatchError
from glow.runtime import Device, Encoder
from glow.runtime.explain import Explainer
from glow.search.columns import Columns
from glow.search.columns_format import COLUMNS_FOLDER, HEADER_FILE
from glow.search.dense import DenseIndex
from glow.search.documents import DocumentStore
from glow.search.filter_masks import FilterMasks
from glow.search.hybrid import DEFAULT_FUSION, FUSION_FILE, Fusion
from glow.search.impacts import ImpactIndex
from glow.search.impacts_format import HEADER_FILE as IMPACTS_HEADER
from glow.search.impacts_format import IMPACTS_FILES, IMPACTS_FOLDER
from glow.search.passages import PASSAGES_FILES, PASSAGES_FOLDER, PassageMap
from glow.text import Preprocessor, TermTable, load_preprocessor

__all__ = ["DENSE_FILE", "DOCUMENTS_FILE", "MODEL_FOLDER", "REPORT_FILE", "TERMS_FOLDER", "Index"]

DENSE_FILE = "vectors.faiss"
DOCUMENTS_FILE = "documents.sqlite"
MODEL_FOLDER = "model"
TERMS_FOLDER = "terms"
REPORT_FILE = "report.json"
TERM_FILES = ("terms.json", "words.bin", "offsets.npy", "dfs.npy")


@dataclass(frozen=True, slots=True)
class Index:
    """One version of an index, immutable and safe to search from many threads.

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
    """

    manifest: Manifest
    preprocessor: Preprocessor
    encoder: Encoder
    dense: DenseIndex
    documents: DocumentStore
    columns: Columns | None = None
    impacts: ImpactIndex | None = None
    fusion: Fusion = DEFAULT_FUSION
    passages: PassageMap | None = None
    explainer: Explainer | None = None
    masks: FilterMasks | None = None

    @classmethod
    def open(cls, folder: Path, device: Device = "cpu", threads: int = 1) -> "Index":
        """Verifies every file of a version, then opens it.

        Args:
            folder: the version's folder.
            device: where the query tower and the vectors live.
            threads: threads of one encoding.

        Raises:
            ArtifactError: missing or damaged (the file is named), or parts that do not belong together.
            DeviceError: the device is not there.
        """
        manifest = verify(folder, "index")
        _check_files(manifest)
        _check_copies(manifest, QUERY_SIDE_FILES)
        terms = TermTable.load(folder / TERMS_FOLDER)
        if terms.hash != manifest.hashes.get("terms"):
            raise MismatchError(
                f"term table of {folder.name} has hash {terms.hash[:12]}, "
                f"its manifest expects {manifest.hashes.get('terms', 'none')[:12]}; rebuild the index"
            )
        preprocessor = load_preprocessor(folder / MODEL_FOLDER, terms)
        encoder = Encoder(folder / MODEL_FOLDER / QUERY_TOWER, preprocessor.pieces.pad_id, device, threads)
        dense = DenseIndex.load(folder / DENSE_FILE, device)
        documents = DocumentStore(folder / DOCUMENTS_FILE)
        _check_shapes(manifest, encoder, dense, documents)
        columns = _open_columns(folder, manifest, documents)
        impacts = _open_impacts(folder, manifest, documents)
        fusion = _open_fusion(folder, manifest)
        passages = _open_passages(folder, manifest, columns)
        explainer = _explainer(folder, manifest, preprocessor, device, threads)
        return cls(
            manifest,
            preprocessor,
            encoder,
            dense,
            documents,
            columns,
            impacts,
            fusion,
            passages,
            explainer=explainer,
            masks=None if columns is None else FilterMasks(columns),
        )

    @property
    def version(self) -> str:
        """The version's name."""
        return self.manifest.name

    @property
    def order(self) -> NDArray[np.uint32] | None:
        """The rank of each row's id in code point order, which breaks ties; None in a version of an older GLOW."""
        return self.columns.order if self.columns else None

    @property
    def model(self) -> str:
        """Name and short hash of the model that built it: `glow-mini@sha256:ab12cd34`."""
        name = _model_parent(self.manifest).get("name", "unknown")
        return f"{name}@sha256:{self.manifest.hashes.get('model', '')[:8]}"


def _open_columns(folder: Path, manifest: Manifest, documents: DocumentStore) -> Columns | None:
    if f"{COLUMNS_FOLDER}/{HEADER_FILE}" not in manifest.files:
        return None
    return Columns.open(folder, documents.count, manifest.files)


def _open_impacts(folder: Path, manifest: Manifest, documents: DocumentStore) -> ImpactIndex | None:
    names = {name: f"{IMPACTS_FOLDER}/{name}" for name in IMPACTS_FILES}
    if names[IMPACTS_HEADER] not in manifest.files:
        return None
    if missing := [path for path in names.values() if path not in manifest.files]:
        raise MismatchError(f"index {manifest.name}: its manifest lacks {missing[0]}; rebuild the index")
    impacts = ImpactIndex.open(folder / IMPACTS_FOLDER)
    if len(impacts) != documents.count:
        raise MismatchError(
            f"index {manifest.name}: impacts of {len(impacts)} documents, {documents.count} stored documents; "
            "rebuild the index"
        )
    return impacts


def _open_fusion(folder: Path, manifest: Manifest) -> Fusion:
    if FUSION_FILE not in manifest.files:
        return DEFAULT_FUSION
    try:
        return Fusion.load(folder / FUSION_FILE)
    except ConfigError as error:
        raise FormatError(f"index {manifest.name}: {error}; tune the index again") from error


def _open_passages(folder: Path, manifest: Manifest, columns: Columns | None) -> PassageMap | None:
    expected = {"passages": manifest.counts.get("passages"), "documents": manifest.counts.get("documents")}
    if expected["passages"] is None:
        return None
    if missing := [name for name in PASSAGES_FILES if name not in manifest.files]:
        raise MismatchError(f"index {manifest.name}: its manifest lacks {missing[0]}; rebuild the index")
    passages = PassageMap.open(folder / PASSAGES_FOLDER, columns.order if columns else None)
    found = {"passages": len(passages), "documents": passages.header.documents}
    if found != expected:
        raise MismatchError(
            f"index {manifest.name}: {PASSAGES_FOLDER}/ holds {found}, its manifest {expected}; rebuild the index"
        )
    return passages


def _explainer(
    folder: Path, manifest: Manifest, preprocessor: Preprocessor, device: Device, threads: int
) -> Explainer | None:
    """Nothing is opened yet, but these are files of the model whose hash the index carries."""
    if f"{MODEL_FOLDER}/{EXPLAIN_FILES[0]}" not in manifest.files:
        return None
    _check_copies(manifest, EXPLAIN_FILES)
    return Explainer(folder / MODEL_FOLDER, preprocessor, device, threads)


def _check_files(manifest: Manifest) -> None:
    """Every file that is opened below is one whose checksum was verified: others in the folder are never read."""
    for name in (DENSE_FILE, DOCUMENTS_FILE, *(f"{TERMS_FOLDER}/{file}" for file in TERM_FILES)):
        if name not in manifest.files:
            raise MismatchError(f"index {manifest.name}: its manifest lacks {name}; rebuild the index")


def _check_copies(manifest: Manifest, names: Sequence[str]) -> None:
    """The files copied from the model are those of the model whose hash the index carries."""
    parent = _model_parent(manifest)
    recorded = parent.get("files", {})
    for name in names:
        copied = manifest.files.get(f"{MODEL_FOLDER}/{name}")
        if copied is None or copied.sha256 != recorded.get(name):
            raise MismatchError(
                f"index {manifest.name}: {MODEL_FOLDER}/{name} is not the file of the model that encoded its "
                f"documents ({parent.get('name')}); rebuild the index"
            )


def _model_parent(manifest: Manifest) -> dict[str, Any]:
    parent = manifest.parents.get("model")
    if not isinstance(parent, dict) or not isinstance(parent.get("files"), dict):
        raise MismatchError(f"index {manifest.name} does not say which model built it; rebuild the index")
    return parent


def _check_shapes(manifest: Manifest, encoder: Encoder, dense: DenseIndex, documents: DocumentStore) -> None:
    expected = manifest.counts.get("documents")
    vectors = manifest.counts.get("passages", expected)
    if documents.count != expected or len(dense) != vectors:
        passages = f" and {vectors} passages" if "passages" in manifest.counts else ""
        raise MismatchError(
            f"index {manifest.name}: {len(dense)} vectors, {documents.count} stored documents, "
            f"{expected}{passages} in the manifest; rebuild the index"
        )
    if dense.dimensions != encoder.dimensions:
        raise MismatchError(
            f"index {manifest.name}: vectors of {dense.dimensions} dimensions, "
            f"a query tower of {encoder.dimensions}; rebuild the index"
        )
