"""A model's files for learned impacts, and the hash that binds an index's learned impacts to them."""

import hashlib
import json
from collections.abc import Mapping

from glow.artifact.manifest import FileRecord

__all__ = ["LEARNED_HEAD", "LEARNED_MODEL_FILES", "TERMS_TOWER", "learned_hash"]

TERMS_TOWER = "document-terms.onnx"
"""The document encoder with a second output, from which learned impacts are made; optional."""
LEARNED_HEAD = "learned.npz"
"""Parameters of learned impacts, and the probability of each term in queries; optional."""
LEARNED_MODEL_FILES = (TERMS_TOWER, LEARNED_HEAD)
"""Optional, and not in the model hash: vectors do not depend on them."""


def learned_hash(files: Mapping[str, FileRecord]) -> str | None:
    """SHA-256 of the additional files that determine learned impacts; None if the model has none.

    Args:
        files: the file table of a model's manifest.
    """
    if any(name not in files for name in LEARNED_MODEL_FILES):
        return None
    parts = {name: files[name].sha256 for name in LEARNED_MODEL_FILES}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
