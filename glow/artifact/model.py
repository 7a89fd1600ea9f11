"""Files of models and re-rankers, and the hashes that bind an index to those that built it."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from glow.artifact.lock import RootLock
from glow.artifact.manifest import MANIFEST_FILE, FileRecord, Manifest, verify
from glow.errors import ArtifactNotFoundError, DependencyError
from glow.text import PREPROCESSOR_VERSION, TOKENIZER_FILE

MODELS_PACKAGE = "glow_models"
"""Data package that contains the models of an installed GLOW."""
BASE_MODEL = "glow-base"
"""Name of the model that is made when it is first named."""
MODELS_VARIABLE = "GLOW_MODELS"
"""Environment variable: directory of made models; default: `models/` of a checkout, otherwise one below `~/.cache`."""
WAIT_S = 3600.0
"""How long a command waits for another that makes the same model."""
QUERY_TOWER, DOCUMENT_TOWER = "query.onnx", "document.onnx"
"""Graphs of the encoders; in a re-ranker, of layers 1 to l over a query and over a document."""
TOWER_WEIGHTS = {QUERY_TOWER: "query.bin", DOCUMENT_TOWER: "document.bin"}
"""Weights of each encoder."""
WORD_TABLE = "words.bin"
"""Token embedding matrix, which both encoders share."""
OPTIONAL_FILES = (TOKENIZER_FILE,)
"""Optional; part of the model hash, and copied by an index."""
TEXT_FILES = (WORD_TABLE, "vocab.txt", "schema.json", "weighting.json")
QUERY_SIDE_FILES = (QUERY_TOWER, TOWER_WEIGHTS[QUERY_TOWER], *TEXT_FILES, "towers.json")
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
    """SHA-256 of the files that determine a model's vectors, and of the preprocessor's version."""
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
    """Verifies a model folder; returns its manifest and model hash."""
    manifest = verify(folder, "model")
    return manifest, model_hash(manifest.files)


def find_model(model: Path | None) -> Path:
    """The directory of a model, given by that or by its name; None: the default model. `glow-base` is made when it is first named."""
    if model is None:
        return default_model()
    if model.exists() or len(model.parts) != 1:
        return model
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "glow", "models")
    own = Path(os.environ.get(MODELS_VARIABLE) or ("models" if Path("models/DEFAULT").is_file() else cache))
    folders = (*model_folders(), own)
    for folder in folders:
        if (folder / model / MANIFEST_FILE).is_file():
            return folder / model
    if str(model) == BASE_MODEL:
        return _make_base(own)
    names = {path.parent.name for folder in folders for path in folder.glob(f"*/{MANIFEST_FILE}")}
    known = ", ".join(sorted({BASE_MODEL, *names}))
    raise ArtifactNotFoundError(f"there is no directory and no model {str(model)!r}; the names are {known}")


def _make_base(folder: Path) -> Path:
    """Makes the model in a process of its own, one at a time."""
    target = folder / BASE_MODEL
    command = [
        sys.executable,
        *f"-m glow import-model {BASE_MODEL} --quantize int8 --out".split(),
        str(target),
    ]
    with RootLock(folder).hold(WAIT_S):
        if not target.exists():
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)  # noqa: S603
            if done.returncode:
                is_missing = done.returncode == DependencyError.exit_code
                kind = DependencyError if is_missing else ArtifactNotFoundError
                raise kind(f"{BASE_MODEL} could not be made; the lines above say why")
    return target


def default_model(models: Path | None = None) -> Path:
    """The model that the file `DEFAULT` names, in a directory of models or else in the first of `model_folders` that has it."""
    if models is None:
        models = next((path for path in model_folders() if (path / "DEFAULT").is_file()), Path("models"))
    try:
        name = (models / "DEFAULT").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ArtifactNotFoundError(
            f"no default model: {models / 'DEFAULT'} cannot be read; run from the repository or give --model"
        ) from error
    return models / name


def model_folders() -> list[Path]:
    """Directories of models: `models/` in the working directory, and what was installed with GLOW."""
    installed = find_spec(MODELS_PACKAGE)
    places = installed.submodule_search_locations if installed else None
    return [Path("models"), *(Path(place) for place in places or ())]


TERMS_TOWER = "document-terms.onnx"
"""The document encoder with a second output, from which learned impacts are made; optional."""
LEARNED_HEAD = "learned.npz"
"""Parameters of learned impacts, and the probability of each term in queries; optional."""
LEARNED_MODEL_FILES = (TERMS_TOWER, LEARNED_HEAD)
"""Optional, and not in the model hash: vectors do not depend on them."""


def learned_hash(files: Mapping[str, FileRecord]) -> str | None:
    """SHA-256 of the additional files that determine learned impacts; None if the model has none."""
    if any(name not in files for name in LEARNED_MODEL_FILES):
        return None
    parts = {name: files[name].sha256 for name in LEARNED_MODEL_FILES}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class TensorNames:
    """Tensor names, and suffixes of parameter names for other stored forms."""

    TABLE: Final = "words.weight"
    """The token embedding matrix in a graph."""
    TRANSPOSED: Final = "^T"
    """Suffix of a matrix that a graph stores transposed."""
    CODES: Final = "_codes"
    """Suffix of a transposed matrix's int8 codes."""
    MATRIX_SCALES: Final = "_scales"
    """Suffix of a transposed matrix's column scales."""

    @staticmethod
    def row_scales(table: str) -> str:
        """The name of the scales of a table's rows: `words.scale` for `words.weight`."""
        return f"{table.removesuffix('.weight')}.scale"


QUERY_READER, DOCUMENT_READER, JOIN_GRAPH = "query.onnx", "document.onnx", "join.onnx"
"""Graphs of a re-ranker: of layers 1 to l over a query, over a document, and of the layers above over both."""
RERANKER_WEIGHTS = "weights.bin"
"""Weights of all graphs of a re-ranker."""
RERANKER_SHAPE = "reranker.json"
"""Number of layers, and sizes."""
RERANK_WEIGHT_FILE = "mixture.json"
"""Weight of the re-ranker's score relative to first-stage retrieval. No part of the hash."""
RERANKER_FOLDER = "reranker"
"""An index version's copy of its re-ranker, which encodes the documents of deltas."""
RERANKER_FILES = (QUERY_READER, DOCUMENT_READER, JOIN_GRAPH, RERANKER_WEIGHTS, *TEXT_FILES, RERANKER_SHAPE)


def reranker_files(files: Mapping[str, FileRecord]) -> tuple[str, ...]:
    """Names of the files that an index copies from a re-ranker."""
    if missing := [name for name in (*RERANKER_FILES, RERANK_WEIGHT_FILE) if name not in files]:
        raise ArtifactNotFoundError(f"the re-ranker lacks {', '.join(missing)}; export it again")
    return (*RERANKER_FILES, RERANK_WEIGHT_FILE)


def open_reranker(folder: Path) -> tuple[Manifest, str]:
    """Verifies a re-ranker folder; returns its manifest and hash."""
    manifest = verify(folder, "reranker")
    return manifest, reranker_hash(manifest.files)


def reranker_hash(files: Mapping[str, FileRecord]) -> str:
    """SHA-256 over the files that decide token embeddings and scores, and the preprocessor's version."""
    parts = {name: files[name].sha256 for name in reranker_files(files) if name != RERANK_WEIGHT_FILE}
    return hashlib.sha256(json.dumps([PREPROCESSOR_VERSION, parts], sort_keys=True).encode()).hexdigest()
