"""The models of an index version: query encoder, explainer and re-ranker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow.artifact import (
    EXPLAIN_FILES,
    QUERY_TOWER,
    RERANKER_FOLDER,
    RERANKER_SHAPE,
    Manifest,
    query_side_files,
    reranker_hash,
)
from glow.errors import MismatchError
from glow.index.segment import Files
from glow.runtime import Device, Encoder, Explainer, Reranker
from glow.text import VOCABULARY_FILE, Preprocessor, TermTable, load_preprocessor

MODEL_FOLDER = "model"
"""Copy of the model's files that searches need."""
TERMS_FOLDER = "terms"
"""Term statistics: each word with its document frequency."""
TERM_FILES = ("terms.json", "words.bin", "offsets.npy", "dfs.npy")
"""Header, words, word offsets and document frequencies."""


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """The open models of a version; they are never closed, because several versions may share one."""

    files: Files  # of the version: path -> identity of the file, and its SHA-256
    place: tuple[Device, int]  # device and threads
    preprocessor: Preprocessor  # with the index's own term statistics
    encoder: Encoder  # the query tower
    explainer: Explainer | None  # opened at its first use; None in a version without explain graphs
    reranker: Reranker | None  # re-ranks hits; None in a version without one

    def has_files(self, files: Files, *folders: str) -> bool:
        """Whether another version has the same files in some directories."""
        return _below(self.files, folders) == _below(files, folders)

    def has_content(self, files: Files, folder: str) -> bool:
        """Whether another version has files of the same content in a directory, shared or copied."""
        mine, theirs = (
            {name: key[1] for name, key in _below(each, (folder,)).items()} for each in (self.files, files)
        )
        return mine == theirs


def _below(files: Files, folders: Sequence[str]) -> dict[str, Any]:
    starts = tuple(f"{folder}/" for folder in folders)
    return {name: key for name, key in files.items() if name.startswith(starts)}


def open_models(
    folder: Path,
    manifest: Manifest,
    files: Files,
    device: Device,
    threads: int,
    # Models of an open version. Those with the same files, or towers with the same content, are shared
    like: Models | None,
) -> Models:
    """Opens the models of a verified version."""
    for name in TERM_FILES:
        if f"{TERMS_FOLDER}/{name}" not in files:
            raise MismatchError(
                f"index {manifest.name}: its manifest lacks {TERMS_FOLDER}/{name}; rebuild the index"
            )
    _check_copies(manifest)
    old = like if like is not None and like.place == (device, threads) else None
    # After a rebuild with the same model: loading tower and vocabulary again would delay searches meanwhile.
    tower = old if old is not None and old.has_content(files, MODEL_FOLDER) else None
    same = old if old is not None and old.has_files(files, MODEL_FOLDER, TERMS_FOLDER) else None
    preprocessor = same.preprocessor if same else open_preprocessor(folder, manifest, tower)
    encoder = tower.encoder if tower else _open_encoder(folder, preprocessor, device, threads)
    reader = old if old is not None and old.has_content(files, RERANKER_FOLDER) else None
    reranker = reader.reranker if reader else _open_reranker(folder, manifest, preprocessor, device, threads)
    explainer = _explainer(folder, manifest, preprocessor, device, threads)
    if same is not None and same.explainer is not None and same.explainer.is_open:
        # One that is not open yet is taken from this directory, which outlives that of the older version.
        explainer = same.explainer
    return Models(files, (device, threads), preprocessor, encoder, explainer, reranker)


def model_parent(manifest: Manifest) -> Mapping[str, Any]:
    """The manifest's record of the model that built the version."""
    parent = manifest.parents.get("model")
    if not isinstance(parent, dict) or not isinstance(parent.get("files"), dict):
        raise MismatchError(f"index {manifest.name} does not say which model built it; rebuild the index")
    return parent


def open_preprocessor(
    folder: Path,
    manifest: Manifest,
    like: Models | None = None,  # models of the same kind, whose subword vocabulary is shared
) -> Preprocessor:
    """The preprocessor of queries, with the index's own term statistics."""
    terms = TermTable.load(folder / TERMS_FOLDER)
    if terms.hash != manifest.hashes.get("terms"):
        raise MismatchError(
            f"term statistics of {folder.name} have hash {terms.hash[:12]}, "
            f"its manifest expects {manifest.hashes.get('terms', 'none')[:12]}; rebuild the index"
        )
    pieces = like.preprocessor.pieces if like else None
    return load_preprocessor(folder / MODEL_FOLDER, terms, pieces, caps_unknown=True)


def _open_encoder(folder: Path, preprocessor: Preprocessor, device: Device, threads: int) -> Encoder:
    return Encoder(folder / MODEL_FOLDER / QUERY_TOWER, preprocessor.pieces.pad_id, device, threads)


def _open_reranker(
    folder: Path, manifest: Manifest, own: Preprocessor, device: Device, threads: int
) -> Reranker | None:
    """The re-ranker of a version; it shares the term statistics and, if it is the same, the vocabulary."""
    prefix, records = f"{RERANKER_FOLDER}/", manifest.files
    if not any(name.startswith(prefix) for name in records):
        return None
    files = {name.removeprefix(prefix): record for name, record in records.items() if name.startswith(prefix)}
    if RERANKER_SHAPE not in files:
        raise MismatchError(
            f"index {manifest.name}: its manifest lacks {prefix}{RERANKER_SHAPE}; rebuild the index"
        )
    if reranker_hash(files) != manifest.hashes.get("reranker"):
        raise MismatchError(
            f"index {manifest.name}: {RERANKER_FOLDER}/ is not the re-ranker that its manifest names; rebuild the index"
        )
    place = folder / RERANKER_FOLDER
    is_same = files[VOCABULARY_FILE] == records[f"{MODEL_FOLDER}/{VOCABULARY_FILE}"]
    preprocessor = load_preprocessor(place, own.terms, own.pieces if is_same else None)
    return Reranker(place, preprocessor, device, threads)


def _explainer(
    folder: Path, manifest: Manifest, preprocessor: Preprocessor, device: Device, threads: int
) -> Explainer | None:
    """Creates an explainer that opens its graphs later, after checking that they belong to the index's model."""
    if f"{MODEL_FOLDER}/{EXPLAIN_FILES[0]}" not in manifest.files:
        return None
    _check_copies(manifest, EXPLAIN_FILES)
    return Explainer(folder / MODEL_FOLDER, preprocessor, device, threads)


def _check_copies(manifest: Manifest, names: Sequence[str] = ()) -> None:
    """Checks that files copied from the model, by default those for queries, belong to the model whose hash the index has."""
    parent = model_parent(manifest)
    recorded = parent.get("files", {})
    for name in names or query_side_files(recorded):
        copied = manifest.files.get(f"{MODEL_FOLDER}/{name}")
        if copied is None or copied.sha256 != recorded.get(name):
            raise MismatchError(
                f"index {manifest.name}: {MODEL_FOLDER}/{name} is not the file of the model that encoded its "
                f"documents ({parent.get('name')}); rebuild the index"
            )
