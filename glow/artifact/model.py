"""The model artifact's files, and the model hash that binds an index to the model that built it."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from glow.artifact.manifest import FileRecord, Manifest, verify
from glow.errors import ArtifactNotFoundError
from glow.text import PREPROCESSOR_VERSION, TOKENIZER_FILE

__all__ = [
    "CALIBRATION_FILE", "DOCUMENT_TOWER", "EXPLAIN_FILES", "EXPLAIN_TOWERS", "HASHED_FILES", "QUERY_SIDE_FILES",
    "QUERY_TOWER", "TOKEN_PROJECTION", "TOWER_WEIGHTS", "WORD_TABLE", "default_model", "documents_hash", "model_hash",
    "open_model", "query_side_files",
]  # fmt: skip

MODELS_PACKAGE = "glow_models"
"""Data package that contains the models of an installed GLOW."""
QUERY_TOWER = "query.onnx"
"""Graph of the query encoder."""
DOCUMENT_TOWER = "document.onnx"
"""Graph of the document encoder."""
TOWER_WEIGHTS = {QUERY_TOWER: "query.bin", DOCUMENT_TOWER: "document.bin"}
"""Weights of each encoder."""
WORD_TABLE = "words.bin"
"""Token embedding matrix, which both encoders share."""
TOKEN_PROJECTION = "tokens.bin"  # noqa: S105 - of texts
"""Projection from the encoders' last layer to token vectors for late interaction, float32 [H, P]; optional."""
OPTIONAL_FILES = (TOKENIZER_FILE, TOKEN_PROJECTION)
"""Optional; part of the model hash, and copied by an index."""
QUERY_SIDE_FILES = (
    QUERY_TOWER,
    TOWER_WEIGHTS[QUERY_TOWER],
    WORD_TABLE,
    "vocab.txt",
    "schema.json",
    "weighting.json",
    "towers.json",
)
"""Copied by an index, so that a hot swap exchanges model and index together."""
EXPLAIN_TOWERS = {QUERY_TOWER: "query-explain.onnx", DOCUMENT_TOWER: "document-explain.onnx"}
"""The encoders with the last layer's attention as second output, for explanations; optional."""
EXPLAIN_FILES = (*EXPLAIN_TOWERS.values(), TOWER_WEIGHTS[DOCUMENT_TOWER])
"""Also copied by an index, for explanations. A model may lack the graphs."""
CALIBRATION_FILE = "calibration.json"
"""Calibration of hybrid scores as probabilities; optional, copied by an index, and no part of the model hash."""
QUERY_ALONE = (QUERY_TOWER, TOWER_WEIGHTS[QUERY_TOWER], "towers.json")
HASHED_FILES = (*QUERY_SIDE_FILES, DOCUMENT_TOWER, TOWER_WEIGHTS[DOCUMENT_TOWER])


def query_side_files(files: Collection[str]) -> tuple[str, ...]:
    """Names of the files that an index copies from a model with these files."""
    return (*QUERY_SIDE_FILES, *(name for name in OPTIONAL_FILES if name in files))


def model_hash(files: Mapping[str, FileRecord]) -> str:
    """SHA-256 of the files that determine a model's vectors, and of the preprocessor's version.

    Args:
        files: the file table of a model's manifest.

    Raises:
        ArtifactNotFoundError: if the table lacks a required file.
    """
    missing = [name for name in HASHED_FILES if name not in files]
    if missing:
        raise ArtifactNotFoundError(f"the model lacks {', '.join(missing)}; export it again")
    return _hash(files, HASHED_FILES)


def documents_hash(files: Mapping[str, FileRecord]) -> str:
    """SHA-256 of what determines the vectors of documents: as `model_hash`, without the query encoder."""
    return _hash(files, [name for name in HASHED_FILES if name not in QUERY_ALONE and name in files])


def _hash(files: Mapping[str, FileRecord], names: Sequence[str]) -> str:
    names = (*names, *(name for name in OPTIONAL_FILES if name in files))
    content = json.dumps([PREPROCESSOR_VERSION, {name: files[name].sha256 for name in names}], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def open_model(folder: Path) -> tuple[Manifest, str]:
    """Verifies a model folder; returns its manifest and model hash.

    Raises:
        ArtifactError: if it is missing, damaged, or not a model.
    """
    manifest = verify(folder, "model")
    return manifest, model_hash(manifest.files)


def default_model(models: Path | None = None) -> Path:
    """The folder of the model that `DEFAULT` names.

    Args:
        models: folder of models; None: `models/` in the working directory if it has a `DEFAULT`, otherwise the
            models that were installed with GLOW.

    Raises:
        ArtifactNotFoundError: if there is no default model.
    """
    if models is None:
        models = next((path for path in _model_folders() if (path / "DEFAULT").is_file()), Path("models"))
    try:
        name = (models / "DEFAULT").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ArtifactNotFoundError(
            f"no default model: {models / 'DEFAULT'} cannot be read; run from the repository or give --model"
        ) from error
    return models / name


def _model_folders() -> list[Path]:
    installed = find_spec(MODELS_PACKAGE)
    places = installed.submodule_search_locations if installed else None
    return [Path("models"), *(Path(place) for place in places or ())]
