"""An index root: version folders, and a `CURRENT` file that names the live one."""

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

from glow.artifact.folder import sync
from glow.artifact.manifest import Manifest, read_manifest, verify
from glow.errors import ArtifactNotFoundError

__all__ = ["CURRENT_FILE", "IndexRoot"]

CURRENT_FILE = "CURRENT"
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class IndexRoot:
    """Versions of one index below a folder.

    Args:
        path: the folder; it need not exist before the first build.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def new_version() -> str:
        """A name for a new version, which sorts by time: `20261121T093000Z-7f3c`."""
        return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"

    def folder(self, version: str) -> Path:
        """The version's folder.

        Raises:
            ArtifactNotFoundError: the name cannot be a version's.
        """
        if not _VERSION.fullmatch(version):
            raise ArtifactNotFoundError(f"{version!r} is no version name; see the folders in {self.path}")
        return self.path / version

    def versions(self) -> list[str]:
        """All versions with a readable manifest, oldest name first."""
        if not self.path.is_dir():
            return []
        folders = (path for path in self.path.iterdir() if _VERSION.fullmatch(path.name) and path.is_dir())
        return sorted(path.name for path in folders if (path / "manifest.json").is_file())

    def current(self) -> str:
        """The live version's name.

        Raises:
            ArtifactNotFoundError: nothing is published, or CURRENT names no version that is there.
        """
        try:
            version = (self.path / CURRENT_FILE).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactNotFoundError(
                f"no published index in {self.path}: {CURRENT_FILE} cannot be read ({error}); "
                "run `python -m index_builder build` or `publish`"
            ) from error
        if not _VERSION.fullmatch(version) or not self.folder(version).is_dir():
            raise ArtifactNotFoundError(
                f"{CURRENT_FILE} in {self.path} names {version!r}, which is not there; "
                f"found {', '.join(self.versions()) or 'no version'}; run `python -m index_builder publish`"
            )
        return version

    def publish(self, version: str) -> Manifest:
        """Makes a version the live one, after verifying it whole.

        The switch is one atomic rename; readers see the old version or the new one.

        Raises:
            ArtifactError: the version is missing or damaged; CURRENT stays as it was.
        """
        manifest = verify(self.folder(version), "index")
        temporary = self.path / f".{CURRENT_FILE}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            temporary.write_text(version + "\n", encoding="utf-8")
            sync(temporary)
            temporary.replace(self.path / CURRENT_FILE)
            sync(self.path)
        finally:
            temporary.unlink(missing_ok=True)
        return manifest

    def manifest(self, version: str) -> Manifest:
        """The manifest of a version, its files unchecked."""
        return read_manifest(self.folder(version), "index")
