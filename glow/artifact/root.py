"""An index root: version folders, a `CURRENT` file that names the live version, and a `PINNED` file.

CURRENT's first line is the live version. The next lines, newest first, are the previously live versions, so that
publishing and rolling back are each one atomic write. Lines that begin with "left " name versions that rollbacks left
since a new version was published.

PINNED has the versions that must not be removed, one per line, permanently or until a time:

    20261121T093000.123456Z-7f3c
    20261122T101500.000000Z-02ab until 2026-11-29T10:15:00+00:00
"""

import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from glow.artifact.lock import RootLock, disk_error, set_aside
from glow.artifact.manifest import (
    MANIFEST_FILE,
    KnownFiles,
    Manifest,
    known_files,
    read_manifest,
    replace_file,
    sync,
    verify,
)
from glow.errors import ArtifactError, ArtifactNotFoundError, BuildError, FormatError, GateError

PINNED_FILE = "PINNED"
"""Pinned versions, one per line, each without limit or until a time."""
VERSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Valid names of version folders."""
UNTIL = " until "


def read_pinned(root: Path, now: datetime | None = None) -> dict[str, datetime | None]:
    """The pinned versions, and until when; None is permanently. Pins that expired `now`, by default at this time, are left out."""
    try:
        lines = (root / PINNED_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{PINNED_FILE} in {root} cannot be read ({error}); correct it: one version per line"
        ) from error
    pinned: dict[str, datetime | None] = {}
    for line in filter(None, map(str.strip, lines)):
        name, _, time = line.partition(UNTIL)
        try:
            until = datetime.fromisoformat(time) if time else None
        except ValueError:
            until = datetime.min  # refused below, like a time without time zone
        if not VERSION_NAME.fullmatch(name) or (until is not None and until.tzinfo is None):
            raise FormatError(
                f"{PINNED_FILE} in {root} has the line {line!r:.200}, expected one version per line, alone or with "
                f"'{UNTIL.strip()}' and a time such as 2026-11-29T10:15:00+00:00; correct it"
            )
        if until is None or until > (now or datetime.now(UTC)):
            pinned[name] = until
    return dict(sorted(pinned.items()))


GATE = "gate"
"""Name of the parameter: an object with `status` (`passed`, `failed`, `forced`), `checks` and more (docs/versions.md)."""


def failed_checks(manifest: Manifest) -> list[str] | None:
    """Names of the checks that a version failed; None if no gate refused it."""
    record = manifest.parameters.get(GATE)
    if not isinstance(record, dict) or record.get("status") != "failed":
        return None
    checks = record.get("checks")
    rows = [check for check in checks if isinstance(check, dict)] if isinstance(checks, list) else []
    return [str(check.get("name")) for check in rows if not check.get("passed")]


CURRENT_FILE = "CURRENT"
"""Names of the live version and of the previous ones."""
WORK_FOLDER = ".work"
"""Finished encoding batches of interrupted builds."""
LEFT = "left "
_TIME_FORMAT = "%Y%m%dT%H%M%S.%fZ"
HISTORY = 20
"""Most previous versions in CURRENT."""
WAIT_S = 60.0
"""How long a change waits for another change, in seconds."""


class IndexRoot:
    """The versions of one index in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = RootLock(path)

    def locked(self, wait_s: float = WAIT_S) -> AbstractContextManager[None]:
        """Locks this root for a block that reads, decides and writes; methods that write take the same lock."""
        return self._lock.hold(wait_s)

    def new_version(self) -> str:
        """A name for a new version, which sorts after all existing ones: `20261121T093000.123456Z-7f3c`.

        It contains the time or, if the clock was set back, the time of the last version plus a microsecond.
        """
        moments = [_moment(version) for version in self.versions()]
        last = max((moment for moment in moments if moment), default=datetime.min.replace(tzinfo=UTC))
        moment = max(datetime.now(UTC), last + timedelta(microseconds=1))
        return f"{moment:{_TIME_FORMAT}}-{secrets.token_hex(2)}"

    def folder(self, version: str) -> Path:
        """The folder of a version."""
        if not VERSION_NAME.fullmatch(version):
            raise ArtifactNotFoundError(f"{version!r} is not a version name; see the folders in {self.path}")
        folder = self.path / version
        if folder.is_symlink():
            raise FormatError(
                f"{folder} is a symbolic link; replace it with a copy of the version's folder, or remove it"
            )
        return folder

    def versions(self) -> list[str]:
        """All versions with a manifest, sorted by name."""
        if not self.path.is_dir():
            return []
        folders = (
            path
            for path in self.path.iterdir()
            if VERSION_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
        )
        return sorted(path.name for path in folders if (path / MANIFEST_FILE).is_file())

    def current(self) -> str:
        """The live version's name."""
        version = self.named()
        if not VERSION_NAME.fullmatch(version) or not self.folder(version).is_dir():
            raise ArtifactNotFoundError(
                f"{CURRENT_FILE} in {self.path} names {version!r}, which is not there; "
                f"found {', '.join(self.versions()) or 'no version'}; run `glow publish`"
            )
        return version

    def named(self) -> str:
        """The first line of CURRENT, which may name a missing version or be invalid."""
        try:
            if not stat.S_ISREG((self.path / CURRENT_FILE).stat().st_mode):
                raise OSError("it is not a regular file")
            return (self.path / CURRENT_FILE).read_text(encoding="utf-8").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactNotFoundError(
                f"no published index in {self.path}: {CURRENT_FILE} cannot be read ({error}); "
                "run `glow build` or `publish`"
            ) from error

    def live(self) -> str | None:
        """The live version; None if nothing was ever published."""
        return self.current() if (self.path / CURRENT_FILE).exists() else None

    def history(self) -> list[str]:
        """Existing versions that were live before this one, newest first."""
        versions = set(self.versions())
        return [line for line in self._below() if line in versions]

    def rolled_back_from(self) -> list[str]:
        """Existing versions that were live until a rollback, in the order of the rollbacks.

        Publishing a version that was never live clears them.
        """
        versions = set(self.versions())
        names = [line.removeprefix(LEFT) for line in self._below() if line.startswith(LEFT)]
        return [name for name in names if name in versions]

    def _below(self) -> list[str]:
        """CURRENT's lines except the first."""
        try:
            return (self.path / CURRENT_FILE).read_text(encoding="utf-8").split("\n")[1:]
        except (OSError, UnicodeDecodeError):
            return []

    def publish(self, version: str) -> Manifest:
        """Verifies a version and makes it live.

        The switch is one atomic rename: readers see the old version or the new one. Files that are hard links to the
        live version's files were verified when that became live, and are not read a second time.
        """
        folder = self.folder(version)
        if not folder.is_dir():
            read_manifest(folder, "index")  # raises the error; the lock would make a missing root
        with self.locked():
            manifest = verify(folder, "index", self._verified(version))
            if (failed := failed_checks(manifest)) is not None:
                record = manifest.parameters[GATE]
                raise GateError(
                    f"the gate refused version {version} at {record.get('time')} for {', '.join(failed)}; "
                    "run `glow gate` again, or publish it anyway with `publish --force`",
                    {GATE: record, "version": version},
                )
            try:
                before = [self.current(), *self.history()]
            except ArtifactNotFoundError:
                before = self.history()
            left = self.rolled_back_from()
            # Publishing an earlier version is also a rollback; a new version clears the list.
            stay = [each for each in left if each != version] if version in (*before, *left) else []
            self._write_current([version, *(each for each in before if each != version)], stay)
        return manifest

    def _verified(self, version: str) -> KnownFiles:
        """Known files of the live version, if it is a different version."""
        try:
            live = self.current()
            return {} if live == version else known_files(self.folder(live), self.manifest(live))
        except ArtifactError:
            return {}

    def rollback(self, version: str | None = None) -> Manifest:
        """Makes a previous version live again, by default the last one; those that it leaves move from the history to `left`."""
        if not self.path.is_dir():
            self.current()
        with self.locked():
            live, before = self.current(), self.history()
            if not before:
                raise ArtifactNotFoundError(
                    f"cannot roll back: {live} has no previous version; publish another with `glow publish` "
                    f"(available: {', '.join(self.versions())})"
                )
            if version is not None and version not in before:
                if version in self.pinned():  # a pin may outlast CURRENT's history
                    return self.publish(version)
                raise ArtifactNotFoundError(
                    f"cannot roll back to {version}: it is not a previous version of {live}; previous: {', '.join(before)}"
                )
            place = 0 if version is None else before.index(version)
            manifest = verify(self.folder(before[place]), "index", self._verified(before[place]))
            stay = before[place:]
            passed = [live, *before[:place]][::-1]
            left = [each for each in (*self.rolled_back_from(), *passed) if each not in stay]
            self._write_current(stay, left)
        return manifest

    def pinned(self, now: datetime | None = None) -> list[str]:
        """Names of the pinned versions, as `read_pinned`; a pinned version may be missing."""
        return list(read_pinned(self.path, now))

    def pin(self, version: str, until: datetime | None = None, most: int | None = None) -> None:
        """Protects a version from removal, until `unpin` or a time; of pins with a time, at most the `most` latest stay."""
        self.manifest(version)
        with self.locked():
            self.manifest(version)  # it may have been removed while this waited
            pinned = read_pinned(self.path)
            before = pinned.get(version, datetime.min.replace(tzinfo=UTC))
            pinned[version] = None if until is None or before is None else max(until, before)
            ending = sorted((end, name) for name, end in pinned.items() if end is not None)
            for _, name in ending[: max(len(ending) - most, 0)] if most is not None else ():
                del pinned[name]
            self._write_pinned(pinned)

    def unpin(self, version: str) -> bool:
        """Removes a version's pin; returns whether it was pinned."""
        if not self.path.is_dir():
            return False
        with self.locked():
            pinned = read_pinned(self.path)
            if version not in pinned:
                return False
            del pinned[version]
            self._write_pinned(pinned)
        return True

    def remove(self, version: str) -> Path:
        """Atomically removes a version from the root; files shared with other versions stay.

        Returns folder of its remaining files, for `glow.artifact.lock.discard`, which may be slow.
        """
        with self.locked():
            if version not in self.versions():
                raise ArtifactNotFoundError(f"no version {version} in {self.path}")
            if version in self.pinned() or version == self.live():
                raise BuildError(f"version {version} is live or pinned, and cannot be removed")
            aside = set_aside(self.folder(version))
            sync(self.path)
        return aside

    def amend(self, version: str, parameters: Mapping[str, Any]) -> Manifest:
        """Adds parameters to the manifest of an unpublished version."""
        with self.locked():
            if version in (self.live(), *self.history()):
                raise BuildError(f"version {version} was published, so its manifest cannot change")
            manifest = self.manifest(version)
            amended = manifest.model_copy(update={"parameters": {**manifest.parameters, **parameters}})
            self._replace(self.folder(version) / MANIFEST_FILE, amended.to_bytes())
        return amended

    def _write_current(self, versions: list[str], left: list[str]) -> None:
        lines = [*versions[: HISTORY + 1], *(LEFT + version for version in left[-HISTORY:])]
        self._replace(self.path / CURRENT_FILE, "".join(f"{line}\n" for line in lines).encode())

    def _write_pinned(self, pinned: Mapping[str, datetime | None]) -> None:
        times = {
            name: "" if until is None else f"{UNTIL}{until.astimezone(UTC).isoformat(timespec='seconds')}"
            for name, until in sorted(pinned.items())
        }
        lines = "".join(f"{name}{time}\n" for name, time in times.items())
        self._replace(self.path / PINNED_FILE, lines.encode())

    def _replace(self, path: Path, content: bytes) -> None:
        """Atomically writes a file of the root or of a version; a kill leaves at most a dot-file in the root."""
        try:
            replace_file(path, content, self.path)
        except OSError as error:
            raise disk_error(self.path, error) from error

    def manifest(self, version: str) -> Manifest:
        """The manifest of a version; its files are not checked."""
        return read_manifest(self.folder(version), "index")


def _moment(version: str) -> datetime | None:
    """The time in a version's name; None for a name of another form."""
    try:
        return datetime.strptime(version.rpartition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
