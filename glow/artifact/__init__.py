"""Artefact folders: manifests, checks, atomic writing, index versions."""

from glow.artifact.folder import ArtifactWriter, write_artifact
from glow.artifact.manifest import MANIFEST_FILE, Manifest, read_manifest, verify
from glow.artifact.model import default_model, model_hash, open_model
from glow.artifact.root import IndexRoot

__all__ = [
    "MANIFEST_FILE",
    "ArtifactWriter",
    "IndexRoot",
    "Manifest",
    "default_model",
    "model_hash",
    "open_model",
    "read_manifest",
    "verify",
    "write_artifact",
]
