"""Artifact folders: manifests, checks, atomic writing, index versions."""

from glow.artifact.folder import ArtifactWriter, sync, write_artifact
from glow.artifact.lock import LOCK_FILE, RootLock
from glow.artifact.making import (
    REMOVED,
    discard,
    folder_for,
    is_abandoned,
    is_temporary,
    set_aside,
    set_aside_abandoned,
)
from glow.artifact.manifest import (
    MANIFEST_FILE,
    FileKey,
    FileRecord,
    KnownFiles,
    Manifest,
    file_records,
    file_sha256,
    read_manifest,
    verify,
)
from glow.artifact.model import (
    DOCUMENT_TOWER,
    EXPLAIN_FILES,
    EXPLAIN_TOWERS,
    QUERY_SIDE_FILES,
    QUERY_TOWER,
    TOWER_WEIGHTS,
    WORD_TABLE,
    default_model,
    model_hash,
    open_model,
)
from glow.artifact.pinned import PINNED_FILE
from glow.artifact.root import CURRENT_FILE, WAIT_S, WORK_FOLDER, IndexRoot
from glow.artifact.tensors import TensorNames
from glow.artifact.verdict import GATE, failed_checks

__all__ = [
    "CURRENT_FILE", "DOCUMENT_TOWER", "EXPLAIN_FILES", "EXPLAIN_TOWERS", "GATE", "LOCK_FILE", "MANIFEST_FILE",
    "PINNED_FILE", "QUERY_SIDE_FILES", "QUERY_TOWER", "REMOVED", "TOWER_WEIGHTS", "WAIT_S", "WORD_TABLE",
    "WORK_FOLDER", "ArtifactWriter", "FileKey", "FileRecord", "IndexRoot", "KnownFiles", "Manifest",
    "RootLock", "TensorNames", "default_model", "discard", "failed_checks", "file_records", "file_sha256",
    "folder_for", "is_abandoned", "is_temporary", "model_hash", "open_model", "read_manifest", "set_aside",
    "set_aside_abandoned", "sync", "verify", "write_artifact",
]  # fmt: skip
