"""Lists the versions of an index root with their state."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glow.artifact import IndexRoot, Manifest
from glow.errors import ArtifactError, ArtifactNotFoundError

__all__ = ["VersionRow", "list_versions", "newest", "table"]


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version.

    Attributes:
        version: its name.
        state: `live`, `previous` (live before; a rollback takes the first), `damaged` (unreadable manifest) or "".
        pinned: whether `gc` must keep it.
        documents: number of documents; None if unknown.
        size_bytes: size of its files, including those shared with other versions.
        created: UTC, ISO 8601.
        gate: `passed`, `failed`, `forced`, or "" without a gate.
        model: short hash of its model.
        made_from: the version that it was derived from; "" for a build.
    """

    version: str
    state: str
    pinned: bool
    documents: int | None = None
    size_bytes: int = 0
    created: str = ""
    gate: str = ""
    model: str = ""
    made_from: str = ""

    def values(self) -> dict[str, Any]:
        """The row as JSON values."""
        return asdict(self)


def list_versions(root: IndexRoot) -> list[VersionRow]:
    """All versions: the live one, then previously live ones, then the rest, newest first.

    Raises:
        ArtifactNotFoundError: if there is no root.
        ArtifactError: if CURRENT or PINNED cannot be read.
    """
    if not root.path.is_dir():
        raise ArtifactNotFoundError(f"no index root at {root.path}; see --index-root")
    live = [each for each in (root.live(),) if each]
    before, pinned = root.history(), root.pinned()
    states = {**dict.fromkeys(before, "previous"), **dict.fromkeys(live, "live")}
    rest = [version for version in reversed(root.versions()) if version not in states]
    return [
        _row(root, version, states.get(version, ""), version in pinned) for version in [*live, *before, *rest]
    ]


def newest(root: IndexRoot) -> str:
    """The version whose name is last.

    Raises:
        ArtifactNotFoundError: if there is none.
    """
    versions = root.versions()
    if not versions:
        raise ArtifactNotFoundError(f"no version in {root.path}; run `glow build` first")
    return versions[-1]


def table(rows: Sequence[VersionRow]) -> str:
    """The versions as text, one per line."""
    lines = [f"{'version':40} {'state':8} {'documents':>10} {'MB':>9}  gate    pinned"]
    for row in rows:
        documents = "?" if row.documents is None else f"{row.documents}"
        lines.append(
            f"{row.version:40} {row.state:8} {documents:>10} {row.size_bytes / 1e6:9.1f}  {row.gate:7} "
            f"{'pinned' if row.pinned else ''}".rstrip()
        )
    return "\n".join(lines)


def _row(root: IndexRoot, version: str, state: str, pinned: bool) -> VersionRow:
    try:
        manifest = root.manifest(version)
    except ArtifactError:
        return VersionRow(version, "damaged", pinned)
    return VersionRow(
        version,
        state,
        pinned,
        manifest.counts.get("documents"),
        sum(record.size_bytes for record in manifest.files.values()),
        manifest.created,
        _gate(manifest),
        manifest.hashes.get("model", "")[:8],
        str(_mapping(manifest.parents.get("version")).get("name", "")),
    )


def _gate(manifest: Manifest) -> str:
    return str(_mapping(manifest.parameters.get("gate")).get("status", ""))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
