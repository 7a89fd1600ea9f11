"""Opens the segments of a verified version by its manifest."""

from pathlib import Path
from typing import NamedTuple

from glow.artifact import FileKey, Manifest
from glow.errors import MismatchError
from glow.index.delta import DELTA_HEADER, DeltaRows
from glow.index.segment import DELTA, Files, Rows, Segment
from glow.index.walk import open_segment
from glow.runtime import Device

__all__ = ["Delta", "closed_base", "files_of", "open_delta"]


class Delta(NamedTuple):
    """The changes since a version's base.

    Attributes:
        rows: row numbers of the delta and of deleted documents.
        segment: the added documents, open.
    """

    rows: DeltaRows
    segment: Segment


def files_of(folder: Path, manifest: Manifest) -> Files:
    """Every file of a version, by its path."""
    return {name: (FileKey.of(folder / name), record.sha256) for name, record in manifest.files.items()}


def closed_base(
    folder: Path, manifest: Manifest, files: Files, delta: Delta | None, device: Device = "cpu"
) -> Segment:
    """The base of a version as a segment, with no component open.

    Args:
        folder, manifest, files: of the version.
        delta: changes since; None if there are none.
        device: of vector search.
    """
    documents = manifest.counts.get("documents", 0) if delta is None else delta.rows.header.base_documents
    return _segment(folder, manifest, files, "", documents, device)


def open_delta(folder: Path, manifest: Manifest, files: Files) -> Delta | None:
    """Opens the delta of a version with all components; None if it has none.

    Args:
        folder, manifest, files: of the version.

    Raises:
        ArtifactError: if a file is missing, damaged, or inconsistent with the others.
    """
    if DELTA_HEADER not in files:
        return None
    rows = DeltaRows.open(folder, files)
    segment = open_segment(_segment(folder, manifest, files, DELTA, rows.header.documents, "cpu"))
    vectors = segment.rows.count("vector")
    if vectors != rows.header.vectors:
        raise MismatchError(
            f"{DELTA} holds {vectors} vectors, {DELTA_HEADER} says {rows.header.vectors}; roll back to an older version"
        )
    return Delta(rows, segment)


def _segment(
    folder: Path, manifest: Manifest, files: Files, below: str, documents: int, device: Device
) -> Segment:
    own = {
        name.removeprefix(below): key
        for name, key in files.items()
        if name.startswith(below) and name.startswith(DELTA) == bool(below)
    }
    return Segment(
        name=manifest.name,
        folder=folder / below,
        root=folder,
        below=below,
        hashes=manifest.hashes,
        parameters=manifest.parameters,
        files=own,
        rows=Rows(documents),
        device=device,
    )
