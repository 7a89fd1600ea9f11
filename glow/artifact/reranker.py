"""The re-ranker artifact's files, and the hash that binds an index' term representations to what made them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from glow.artifact.manifest import FileRecord, Manifest, verify
from glow.artifact.model import WORD_TABLE
from glow.errors import ArtifactNotFoundError
from glow.text import PREPROCESSOR_VERSION

__all__ = [
    "DOCUMENT_READER", "JOIN_GRAPH", "LATE_GRAPH", "MIXTURE_FILE", "QUERY_READER", "RERANKER_FOLDER", "RERANKER_SHAPE",
    "RERANKER_WEIGHTS", "open_reranker", "reranker_files", "reranker_hash",
]  # fmt: skip

QUERY_READER, DOCUMENT_READER, JOIN_GRAPH = "query.onnx", "document.onnx", "join.onnx"
"""Layers 1 to l over a query, over a document, and the layers above over both."""
LATE_GRAPH = "late.onnx"
"""Late interaction over the same states; a re-ranker may lack it."""
RERANKER_WEIGHTS = "weights.bin"
"""External data of all graphs; what two of them share lies in it once."""
RERANKER_SHAPE = "reranker.json"
MIXTURE_FILE = "mixture.json"
"""How much the score counts beside that of the first search. No part of the hash: states do not depend on it."""
RERANKER_FOLDER = "reranker"
"""Where an index version has its copy, whole: a delta reads documents with it."""
_NEEDED = (
    QUERY_READER, DOCUMENT_READER, JOIN_GRAPH, RERANKER_WEIGHTS, WORD_TABLE, "vocab.txt", "schema.json", "weighting.json",
    RERANKER_SHAPE,
)  # fmt: skip


def reranker_files(files: Mapping[str, FileRecord]) -> tuple[str, ...]:
    """Names of the files that an index copies, of those in a re-ranker's manifest.

    Raises:
        ArtifactNotFoundError: if one is missing.
    """
    missing = [name for name in (*_NEEDED, MIXTURE_FILE) if name not in files]
    if missing:
        raise ArtifactNotFoundError(f"the re-ranker lacks {', '.join(missing)}; export it again")
    return (*_NEEDED, MIXTURE_FILE, *([LATE_GRAPH] if LATE_GRAPH in files else []))


def reranker_hash(files: Mapping[str, FileRecord]) -> str:
    """SHA-256 over the files that decide states and scores, and the preprocessor's version.

    Args:
        files: the file table of a re-ranker's manifest.

    Raises:
        ArtifactNotFoundError: if a file is missing in it.
    """
    parts = {name: files[name].sha256 for name in reranker_files(files) if name != MIXTURE_FILE}
    return hashlib.sha256(json.dumps([PREPROCESSOR_VERSION, parts], sort_keys=True).encode()).hexdigest()


def open_reranker(folder: Path) -> tuple[Manifest, str]:
    """Verifies a re-ranker's folder whole; returns its manifest and hash.

    Raises:
        ArtifactError: if it is missing, damaged, or not a re-ranker.
    """
    manifest = verify(folder, "reranker")
    return manifest, reranker_hash(manifest.files)
