"""The re-ranker and the term representations of an index version, opened: what belongs together, or an error that says what does not."""

from pathlib import Path

from glow.artifact import RERANKER_FOLDER, RERANKER_SHAPE, FileRecord, Manifest, reranker_hash
from glow.errors import MismatchError
from glow.index.token_embeddings import STATES_FILES, STATES_FOLDER, STATES_HEADER, TermStates
from glow.runtime import Device, Reranker, RerankerShape, reranker_preprocessor
from glow.text import VOCABULARY_FILE, Preprocessor

__all__ = ["open_states", "open_version_reranker", "reranker_digest"]


def reranker_digest(manifest: Manifest) -> str | None:
    """Hash of the re-ranker whose files a version holds; None where it has none.

    Raises:
        MismatchError: if it is not the one that its manifest names.
    """
    prefix = f"{RERANKER_FOLDER}/"
    files = {
        name.removeprefix(prefix): record
        for name, record in manifest.files.items()
        if name.startswith(prefix)
    }
    if RERANKER_SHAPE not in files:
        return None
    digest = reranker_hash(files)
    if digest != manifest.hashes.get("reranker"):
        raise MismatchError(
            f"index {manifest.name}: {RERANKER_FOLDER}/ is not the re-ranker that its manifest names; rebuild the index"
        )
    return digest


def open_version_reranker(
    folder: Path,
    manifest: Manifest,
    own: Preprocessor,
    own_vocabulary: FileRecord,
    device: Device,
    threads: int,
) -> Reranker | None:
    """Opens the re-ranker of a version; None where it has none.

    Args:
        folder: of the version.
        manifest: its manifest.
        own: the model's preprocessor, whose table of terms is shared and, if it is the same, its vocabulary.
        own_vocabulary: what the manifest says of that.
        device, threads: as for `Reranker`.

    Raises:
        ArtifactError: if it is damaged, or not the one that the manifest names.
        DeviceError: if the device is not there.
    """
    if reranker_digest(manifest) is None:
        return None
    place = folder / RERANKER_FOLDER
    is_same = manifest.files[f"{RERANKER_FOLDER}/{VOCABULARY_FILE}"] == own_vocabulary
    preprocessor = reranker_preprocessor(place, own.terms, own.pieces if is_same else None)
    return Reranker(place, preprocessor, device, threads)


def open_states(folder: Path, manifest: Manifest, rows: int, part: str = "") -> TermStates | None:
    """Opens the term representations of a version, or of its delta.

    Args:
        folder: of the version.
        manifest: its manifest.
        rows: that the store must have.
        part: folder in the version, with its slash; empty for the version itself.

    Returns:
        None where the version has no re-ranker.

    Raises:
        ArtifactError: if a file is missing, damaged, or made by another re-ranker.
    """
    digest = reranker_digest(manifest)
    has_states = f"{part}{STATES_FOLDER}/{STATES_HEADER}" in manifest.files
    if digest is None and not has_states:
        return None
    names = [f"{part}{STATES_FOLDER}/{name}" for name in STATES_FILES]
    missing = next((name for name in names if name not in manifest.files), None)
    if digest is None or missing is not None:
        lacking = missing or f"{RERANKER_FOLDER}/"
        raise MismatchError(f"index {manifest.name}: its manifest lacks {lacking}; rebuild the index")
    states = TermStates.open(folder / part / STATES_FOLDER, rows)
    states.require_model(digest)
    shape, header = RerankerShape.load(folder / RERANKER_FOLDER / RERANKER_SHAPE), states.header
    expected = (shape.split, shape.size, shape.query_tokens, shape.document_tokens)
    found = (header.split, header.size, header.position_start, header.document_tokens)
    if found != expected:
        raise MismatchError(
            f"{part}{STATES_FOLDER}/{STATES_HEADER} says of layers, numbers, start and longest document {found}, "
            f"the re-ranker {expected}; rebuild the index"
        )
    return states
