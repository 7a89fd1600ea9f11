"""Artifact folders: manifests, checks, atomic writing, index versions."""

from glow.artifact.lock import (
    LOCK_FILE,
    REMOVED,
    RootLock,
    discard,
    disk_error,
    folder_for,
    is_abandoned,
    is_temporary,
    set_aside,
    set_aside_abandoned,
    try_lock,
)
from glow.artifact.manifest import (
    MANIFEST_FILE,
    ArtifactWriter,
    FileKey,
    FileRecord,
    Manifest,
    file_records,
    file_sha256,
    read_manifest,
    replace_file,
    sync,
    verify,
    write_artifact,
)
from glow.artifact.model import (
    CALIBRATION_FILE,
    DOCUMENT_TOWER,
    EXPLAIN_FILES,
    EXPLAIN_TOWERS,
    LEARNED_HEAD,
    QUERY_TOWER,
    TERMS_TOWER,
    TOWER_WEIGHTS,
    WORD_TABLE,
    TensorNames,
    default_model,
    documents_hash,
    learned_hash,
    model_hash,
    open_model,
    query_side_files,
)
from glow.artifact.reranker import (
    DOCUMENT_READER,
    JOIN_GRAPH,
    QUERY_READER,
    RERANK_WEIGHT_FILE,
    RERANKER_FOLDER,
    RERANKER_SHAPE,
    RERANKER_WEIGHTS,
    open_reranker,
    reranker_files,
    reranker_hash,
)
from glow.artifact.root import CURRENT_FILE, GATE, PINNED_FILE, WAIT_S, WORK_FOLDER, IndexRoot, failed_checks

__all__ = [
    "CALIBRATION_FILE", "CURRENT_FILE", "DOCUMENT_READER", "DOCUMENT_TOWER", "EXPLAIN_FILES", "EXPLAIN_TOWERS",
    "GATE", "JOIN_GRAPH", "LEARNED_HEAD", "LOCK_FILE", "MANIFEST_FILE", "PINNED_FILE", "QUERY_READER",
    "QUERY_TOWER", "REMOVED", "RERANKER_FOLDER", "RERANKER_SHAPE", "RERANKER_WEIGHTS", "RERANK_WEIGHT_FILE",
    "TERMS_TOWER", "TOWER_WEIGHTS", "WAIT_S", "WORD_TABLE", "WORK_FOLDER", "ArtifactWriter",
    "FileKey", "FileRecord", "IndexRoot", "Manifest", "RootLock", "TensorNames", "default_model", "discard",
    "disk_error", "documents_hash", "failed_checks", "file_records", "file_sha256", "folder_for", "is_abandoned",
    "is_temporary", "learned_hash", "model_hash", "open_model", "open_reranker", "query_side_files", "read_manifest",
    "replace_file", "reranker_files", "reranker_hash", "set_aside", "set_aside_abandoned", "sync", "try_lock",
    "verify", "write_artifact",
]  # fmt: skip
