"""An index root: version folders, and a `CURRENT` file that names the live one.

CURRENT's first line is the live version; the lines below it, newest first, are those that were live before, so that
publishing and rolling back are each one atomic write, and a history can never say other than what happened.
"""

import os
import re
import secrets
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from glow.artifact.folder import sync
from glow.artifact.lock import RootLock
from glow.artifact.manifest import Manifest, read_manifest, verify
from glow.errors import ArtifactNotFoundError

__all__ = ["CURRENT_FILE", "IndexRoot"]

CURRENT_FILE = "CURRENT"
HISTORY = 20
"""Versions that CURRENT remembers beside the live one."""
WAIT_S = 60.0
"""How long a change waits for another one: publishing takes seconds."""
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class IndexRoot:
    """Versions of one index below a folder.

    Args:
        path: the folder; it need not exist before the first build.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = RootLock(path)

    def locked(self, wait_s: float = WAIT_S) -> AbstractContextManager[None]:
        """The right to change this root, for a block that reads, decides and writes; the methods below take it, too.

        Raises:
            BusyError: another process has it for longer than `wait_s`.
            ReadOnlyError: the root cannot be written.
        """
        return self._lock.hold(wait_s)

    @staticmethod
    def new_version() -> str:
        """A name for a new version, which sorts by time: `20261121T093000.123456Z-7f3c`."""
        return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(2)}"

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
            version = (self.path / CURRENT_FILE).read_text(encoding="utf-8").partition("\n")[0].strip()
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

    def history(self) -> list[str]:
        """The versions that were live before this one and are still there, newest first."""
        try:
            lines = (self.path / CURRENT_FILE).read_text(encoding="utf-8").split("\n")[1:]
        except (OSError, UnicodeDecodeError):
            return []
        there = set(self.versions())
        return [line for line in lines if line in there]

    def publish(self, version: str) -> Manifest:
        """Makes a version the live one, after verifying it whole.

        The switch is one atomic rename; readers see the old version or the new one.

        Raises:
            ArtifactError: the version is missing or damaged; CURRENT stays as it was.
            BusyError: another process changes this root.
            ReadOnlyError: the root cannot be written.
        """
        folder = self.folder(version)
        if not folder.is_dir():
            read_manifest(folder, "index")  # says what is missing; a root that is not there is not made
        with self.locked():
            manifest = verify(folder, "index")
            try:
                before = [self.current(), *self.history()]
            except ArtifactNotFoundError:
                before = self.history()
            self._write_current([version, *(each for each in before if each != version)])
        return manifest

    def rollback(self) -> Manifest:
        """Makes the version live that was so before the live one; what is left behind leaves the history.

        Raises:
            ArtifactNotFoundError: no version was live before, or none of them is left.
            ArtifactError, BusyError, ReadOnlyError: as `publish`.
        """
        if not self.path.is_dir():
            self.current()
        with self.locked():
            live, before = self.current(), self.history()
            if not before:
                raise ArtifactNotFoundError(
                    f"no version was live before {live}, or none is left; name one of "
                    f"{', '.join(self.versions())} with `python -m index_builder publish`"
                )
            manifest = verify(self.folder(before[0]), "index")
            self._write_current(before)
        return manifest

    def _write_current(self, versions: list[str]) -> None:
        temporary = self.path / f".{CURRENT_FILE}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            temporary.write_text("".join(f"{each}\n" for each in versions[: HISTORY + 1]), encoding="utf-8")
            sync(temporary)
            temporary.replace(self.path / CURRENT_FILE)
            sync(self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def manifest(self, version: str) -> Manifest:
        """The manifest of a version, its files unchecked."""
        return read_manifest(self.folder(version), "index")
