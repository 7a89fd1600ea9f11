"""The files of an index version, opened part by part; what an open version has of the same files is taken from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow.artifact import (
    EXPLAIN_FILES,
    QUERY_TOWER,
    RERANKER_FOLDER,
    FileKey,
    KnownFiles,
    Manifest,
    query_side_files,
)
from glow.errors import MismatchError
from glow.index.columns import COLUMNS_FOLDER, COLUMNS_HEADER, Columns
from glow.index.dense_part import DENSE_FILE, StoredVectors, open_dense
from glow.index.learned_sparse import open_learned
from glow.index.milvus import STORE_FILE, MilvusVectors
from glow.index.passages import PASSAGES_FILES, PASSAGES_FOLDER, PassageMap
from glow.index.postings import (
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    LEARNED_FOLDER,
    ImpactIndex,
    read_impacts_header,
)
from glow.index.reranker_parts import open_states, open_version_reranker
from glow.index.spelling import SPELLING_FILES, SPELLING_FOLDER, SPELLING_HEADER, SpellingTable
from glow.index.stored_fields import DocumentStore
from glow.index.token_embeddings import STATES_FOLDER, TermStates
from glow.index.views import DenseView
from glow.runtime import Device, Encoder, Explainer, Reranker
from glow.text import VOCABULARY_FILE, Preprocessor, TermTable, load_preprocessor

__all__ = [
    "DENSE_FILE", "DOCUMENTS_FILE", "MODEL_FOLDER", "REPORT_FILE", "STEMS_FOLDER", "TERMS_FOLDER", "Rows", "VersionParts",
    "model_parent", "open_parts",
]  # fmt: skip

DOCUMENTS_FILE = "documents.sqlite"
MODEL_FOLDER = "model"
TERMS_FOLDER = "terms"
STEMS_FOLDER = "stems"
"""The table that the idf of stems comes from, for what is added later; only where the analyzer makes stems."""
REPORT_FILE = "report.json"
TERM_FILES = ("terms.json", "words.bin", "offsets.npy", "dfs.npy")


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows the files outside `delta/` must have; `passages` is None where they are documents."""

    documents: int | None
    passages: int | None


@dataclass(frozen=True, slots=True, eq=False)
class VersionParts:
    """What the files of a version outside `delta/` were opened as; attributes as for `Index`.

    Nothing of it is ever closed: several versions may share a part, which goes with the last of them.

    Attributes:
        files: path -> which file it was, and its SHA-256.
        place: device and threads.
    """

    files: Mapping[str, tuple[FileKey, str]]
    place: tuple[Device, int]
    preprocessor: Preprocessor
    encoder: Encoder
    explainer: Explainer | None
    dense: StoredVectors
    documents: DocumentStore
    columns: Columns | None
    impacts: ImpactIndex | None
    passages: PassageMap | None
    spelling: SpellingTable | None
    reranker: Reranker | None
    states: TermStates | None
    learned: ImpactIndex | None

    @property
    def known(self) -> KnownFiles:
        """These files, for `glow.artifact.verify` of a version that shares some."""
        return dict(self.files.values())

    def has(self, files: Mapping[str, tuple[FileKey, str]], *paths: str) -> bool:
        """Whether these are the same files as another version's below some paths, so that what was opened is the same."""

        def below(found: Mapping[str, tuple[FileKey, str]]) -> dict[str, tuple[FileKey, str]]:
            return {name: key for name, key in found.items() if name.startswith(paths)}

        return below(self.files) == below(files)

    def holds(self, files: Mapping[str, tuple[FileKey, str]], path: str) -> bool:
        """Whether another version's files below a path have the same content, be they the same files or copies."""

        def below(found: Mapping[str, tuple[FileKey, str]]) -> dict[str, str]:
            return {name: digest for name, (_, digest) in found.items() if name.startswith(path)}

        return below(self.files) == below(files)


def open_parts(
    folder: Path, manifest: Manifest, rows: Rows, device: Device, threads: int, like: VersionParts | None
) -> VersionParts:
    """Opens a verified version but for its delta.

    Args:
        folder: the version's folder.
        manifest: its manifest.
        rows: what the files must have.
        device, threads: as for `Index.open`.
        like: parts of an open version, on the same device.

    Raises:
        ArtifactError: if damaged, or parts that do not belong together.
        DeviceError: if the device is not there.
    """
    _check_files(manifest)
    files = {name: (FileKey.of(folder / name), record.sha256) for name, record in manifest.files.items()}
    old = like if like is not None and like.place == (device, threads) else None

    def same(*paths: str) -> VersionParts | None:
        return old if old is not None and old.has(files, *paths) else None

    model = same(f"{MODEL_FOLDER}/", f"{TERMS_FOLDER}/")
    _check_copies(manifest)
    # Of a rebuild by the same model: making a tower and its word pieces anew would hold up those who search meanwhile.
    tower = old if old is not None and old.holds(files, f"{MODEL_FOLDER}/") else None
    preprocessor = model.preprocessor if model else _open_preprocessor(folder, manifest, tower)
    encoder = tower.encoder if tower else _open_encoder(folder, preprocessor, device, threads)
    like_part = same(DOCUMENTS_FILE)
    documents = like_part.documents if like_part else DocumentStore(folder / DOCUMENTS_FILE)
    _check_documents(manifest, rows, documents)
    like_part = same(f"{COLUMNS_FOLDER}/")
    columns = like_part.columns if like_part else _open_columns(folder, manifest, documents)
    like_part = same(DENSE_FILE, STORE_FILE, f"{COLUMNS_FOLDER}/")
    dense = like_part.dense if like_part else _open_dense(folder, manifest, columns, device)
    _check_shapes(manifest, rows, encoder, dense, documents)
    like_part = same(f"{IMPACTS_FOLDER}/")
    impacts = like_part.impacts if like_part else _open_impacts(folder, manifest, documents)
    like_part = same(f"{COLUMNS_FOLDER}/", f"{PASSAGES_FOLDER}/")
    passages = like_part.passages if like_part else _open_passages(folder, manifest, rows, columns)
    like_part = same(f"{SPELLING_FOLDER}/")
    spelling = like_part.spelling if like_part else _open_spelling(folder, manifest)
    reader = old if old is not None and old.holds(files, f"{RERANKER_FOLDER}/") else None
    reranker = reader.reranker if reader else _open_reranker(folder, manifest, preprocessor, device, threads)
    like_part = same(f"{STATES_FOLDER}/")
    states = like_part.states if like_part else open_states(folder, manifest, len(dense))
    like_part = same(f"{LEARNED_FOLDER}/")
    learned = like_part.learned if like_part else open_learned(folder, manifest, documents.count)
    # One that is not open yet is better opened from this folder, which outlives the older version's.
    is_open = model is not None and model.explainer is not None and model.explainer.is_open
    explainer = _explainer(folder, manifest, preprocessor, device, threads)
    explainer = model.explainer if model is not None and is_open else explainer
    return VersionParts(
        files,
        (device, threads),
        preprocessor,
        encoder,
        explainer,
        dense,
        documents,
        columns,
        impacts,
        passages,
        spelling,
        reranker,
        states,
        learned,
    )


def model_parent(manifest: Manifest) -> dict[str, Any]:
    """What a version's manifest says of the model that built it.

    Raises:
        MismatchError: if it says nothing.
    """
    parent = manifest.parents.get("model")
    if not isinstance(parent, dict) or not isinstance(parent.get("files"), dict):
        raise MismatchError(f"index {manifest.name} does not say which model built it; rebuild the index")
    return parent


def _open_preprocessor(folder: Path, manifest: Manifest, like: VersionParts | None) -> Preprocessor:
    terms = TermTable.load(folder / TERMS_FOLDER)
    if terms.hash != manifest.hashes.get("terms"):
        raise MismatchError(
            f"term table of {folder.name} has hash {terms.hash[:12]}, "
            f"its manifest expects {manifest.hashes.get('terms', 'none')[:12]}; rebuild the index"
        )
    pieces = like.preprocessor.pieces if like else None
    return load_preprocessor(folder / MODEL_FOLDER, terms, pieces, caps_unknown=True)


def _open_encoder(folder: Path, preprocessor: Preprocessor, device: Device, threads: int) -> Encoder:
    return Encoder(folder / MODEL_FOLDER / QUERY_TOWER, preprocessor.pieces.pad_id, device, threads)


def _open_dense(folder: Path, manifest: Manifest, columns: Columns | None, device: Device) -> StoredVectors:
    vectors = open_dense(folder, columns, device)
    if isinstance(vectors, MilvusVectors):
        vectors.check(manifest.hashes.get("model", ""), manifest.hashes.get("terms", ""))
    return vectors


def _open_columns(folder: Path, manifest: Manifest, documents: DocumentStore) -> Columns | None:
    if f"{COLUMNS_FOLDER}/{COLUMNS_HEADER}" not in manifest.files:
        return None
    return Columns.open(folder, documents.count, manifest.files)


def _open_impacts(folder: Path, manifest: Manifest, documents: DocumentStore) -> ImpactIndex | None:
    if f"{IMPACTS_FOLDER}/{IMPACTS_HEADER}" not in manifest.files:
        return None
    names = (f"{IMPACTS_FOLDER}/{name}" for name in read_impacts_header(folder / IMPACTS_FOLDER).files)
    if missing := [path for path in names if path not in manifest.files]:
        raise MismatchError(f"index {manifest.name}: its manifest lacks {missing[0]}; rebuild the index")
    impacts = ImpactIndex.open(folder / IMPACTS_FOLDER)
    if len(impacts) != documents.count:
        raise MismatchError(
            f"index {manifest.name}: impacts of {len(impacts)} documents, {documents.count} stored documents; "
            "rebuild the index"
        )
    return impacts


def _open_spelling(folder: Path, manifest: Manifest) -> SpellingTable | None:
    names = {name: f"{SPELLING_FOLDER}/{name}" for name in SPELLING_FILES}
    if names[SPELLING_HEADER] not in manifest.files:
        return None
    if missing := [path for path in names.values() if path not in manifest.files]:
        raise MismatchError(f"index {manifest.name}: its manifest lacks {missing[0]}; rebuild the index")
    return SpellingTable.open(folder / SPELLING_FOLDER)


def _open_reranker(
    folder: Path, manifest: Manifest, own: Preprocessor, device: Device, threads: int
) -> Reranker | None:
    vocabulary = manifest.files[f"{MODEL_FOLDER}/{VOCABULARY_FILE}"]
    return open_version_reranker(folder, manifest, own, vocabulary, device, threads)


def _open_passages(
    folder: Path, manifest: Manifest, rows: Rows, columns: Columns | None
) -> PassageMap | None:
    if rows.passages is None:
        return None
    if missing := [name for name in PASSAGES_FILES if name not in manifest.files]:
        raise MismatchError(f"index {manifest.name}: its manifest lacks {missing[0]}; rebuild the index")
    passages = PassageMap.open(folder / PASSAGES_FOLDER, columns.order if columns else None)
    expected = {"passages": rows.passages, "documents": rows.documents}
    counts = {"passages": len(passages), "documents": passages.header.documents}
    if counts != expected:
        raise MismatchError(
            f"index {manifest.name}: {PASSAGES_FOLDER}/ holds {counts}, its manifest {expected}; rebuild the index"
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
    """Every file that is opened is one whose checksum was verified: others in the folder are never read."""
    dense = STORE_FILE if STORE_FILE in manifest.files else DENSE_FILE
    for name in (dense, DOCUMENTS_FILE, *(f"{TERMS_FOLDER}/{file}" for file in TERM_FILES)):
        if name not in manifest.files:
            raise MismatchError(f"index {manifest.name}: its manifest lacks {name}; rebuild the index")


def _check_copies(manifest: Manifest, names: Sequence[str] = ()) -> None:
    """The files copied from the model, by default what queries are read with, are those of the model whose hash the index carries."""
    parent = model_parent(manifest)
    recorded = parent.get("files", {})
    for name in names or query_side_files(recorded):
        copied = manifest.files.get(f"{MODEL_FOLDER}/{name}")
        if copied is None or copied.sha256 != recorded.get(name):
            raise MismatchError(
                f"index {manifest.name}: {MODEL_FOLDER}/{name} is not the file of the model that encoded its "
                f"documents ({parent.get('name')}); rebuild the index"
            )


def _check_documents(manifest: Manifest, rows: Rows, documents: DocumentStore) -> None:
    """Before anything that is read row by row beside them."""
    if documents.count != rows.documents:
        raise MismatchError(
            f"index {manifest.name}: {documents.count} stored documents, {rows.documents} in the manifest; rebuild the index"
        )


def _check_shapes(
    manifest: Manifest, rows: Rows, encoder: Encoder, dense: DenseView, documents: DocumentStore
) -> None:
    vectors = rows.documents if rows.passages is None else rows.passages
    if len(dense) != vectors:
        passages = f" and {vectors} passages" if rows.passages is not None else ""
        raise MismatchError(
            f"index {manifest.name}: {len(dense)} vectors, {documents.count} stored documents, "
            f"{rows.documents}{passages} in the manifest; rebuild the index"
        )
    if dense.dimensions != encoder.dimensions:
        raise MismatchError(
            f"index {manifest.name}: vectors of {dense.dimensions} dimensions, "
            f"a query tower of {encoder.dimensions}; rebuild the index"
        )
