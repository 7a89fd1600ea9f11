"""The re-ranker artifact's files, and the hash that binds an index's token embeddings to the re-ranker."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from glow.artifact.manifest import FileRecord, Manifest, verify
from glow.artifact.model import WORD_TABLE
from glow.errors import ArtifactNotFoundError
from glow.text import PREPROCESSOR_VERSION

QUERY_READER, DOCUMENT_READER, JOIN_GRAPH = "query.onnx", "document.onnx", "join.onnx"
"""Graphs of layers 1 to l over a query, of layers 1 to l over a document, and of the layers above over both."""
RERANKER_WEIGHTS = "weights.bin"
"""Weights of all graphs."""
RERANKER_SHAPE = "reranker.json"
"""Number of layers, and sizes."""
RERANK_WEIGHT_FILE = "mixture.json"
"""Weight of the re-ranker's score relative to first-stage retrieval. No part of the hash."""
RERANKER_FOLDER = "reranker"
"""An index version's copy of its re-ranker, which encodes the documents of deltas."""
_NEEDED = (
    QUERY_READER, DOCUMENT_READER, JOIN_GRAPH, RERANKER_WEIGHTS, WORD_TABLE, "vocab.txt", "schema.json", "weighting.json",
    RERANKER_SHAPE,
)  # fmt: skip


def reranker_files(files: Mapping[str, FileRecord]) -> tuple[str, ...]:
    """Names of the files that an index copies from a re-ranker."""
    missing = [name for name in (*_NEEDED, RERANK_WEIGHT_FILE) if name not in files]
    if missing:
        raise ArtifactNotFoundError(f"the re-ranker lacks {', '.join(missing)}; export it again")
    return (*_NEEDED, RERANK_WEIGHT_FILE)


def reranker_hash(files: Mapping[str, FileRecord]) -> str:
    """SHA-256 over the files that decide states and scores, and the preprocessor's version."""
    parts = {name: files[name].sha256 for name in reranker_files(files) if name != RERANK_WEIGHT_FILE}
    return hashlib.sha256(json.dumps([PREPROCESSOR_VERSION, parts], sort_keys=True).encode()).hexdigest()


def open_reranker(folder: Path) -> tuple[Manifest, str]:
    """Verifies a re-ranker folder; returns its manifest and hash."""
    manifest = verify(folder, "reranker")
    return manifest, reranker_hash(manifest.files)
