"""The hot swap, which makes the version that CURRENT names live.

The new version is opened, verified and warmed up while the live one serves, and then replaces it; requests in flight
keep the old one. A version that cannot be opened is refused: the live one stays; `/readyz` and the log have the reason.
"""

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from glow.artifact import CURRENT_FILE, MANIFEST_FILE, IndexRoot
from glow.errors import ArtifactError, ArtifactNotFoundError, GlowError
from glow.index.stored_fields import STORED_FIELDS
from glow_service.live.resources import OpenVersion, Resources
from glow_service.live.workers import WorkerGroup
from glow_service.telemetry import Metrics

__all__ = ["OUTCOMES", "Refusal", "Swap"]

DONE, REFUSED, SUPERSEDED = "done", "refused", "superseded"
OUTCOMES = (DONE, REFUSED, SUPERSEDED)
"""Outcomes in `glow_index_swaps_total`; superseded: CURRENT named the live version again before the new one was open."""
MAX_REASON_CHARACTERS = 500
Identity = tuple[int, int, int]
"""Inode, modification time and size, which differ after a file was written."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A version that CURRENT names, but that cannot be served.

    Attributes:
        version: its name.
        code: code of the error.
        reason: message of the error, without paths of this machine.
        at: time of the refusal, UTC, ISO 8601.
    """

    version: str
    code: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class _Mark:
    """Result of a check of CURRENT; an unchanged result needs no action."""

    version: str
    current: Identity | None
    manifest: Identity | None


class Swap:
    """Follows CURRENT; only one thread may call `follow`.

    Args:
        index_root: directory of the versions.
        resources: resources with the live version, which must be loaded before `follow`.
        metrics: receives the outcomes of swaps.
        group: the workers, which take turns at loading.
        loaders: most workers that load at the same time, >= 1.

    Attributes:
        refusal: refusal of the version that CURRENT names; None if that is live or being opened.
    """

    def __init__(
        self, index_root: Path, resources: Resources, metrics: Metrics, group: WorkerGroup, loaders: int = 1
    ) -> None:
        self._group = group
        self._loaders = loaders
        self._root = IndexRoot(index_root)
        self._resources = resources
        self._metrics = metrics
        self._mark: _Mark | None = None
        self._is_readable = True
        self.refusal: Refusal | None = None
        self._outcomes = {outcome: metrics.swaps.labels(outcome) for outcome in OUTCOMES}

    def follow(self, *, force: bool = False) -> bool:
        """Checks CURRENT and swaps until the version that it names is live or refused; blocks meanwhile.

        A refused version is tried again after CURRENT or its manifest was written.

        Args:
            force: always try a refused version again.

        Returns:
            Whether CURRENT was written since the last check.
        """
        has_changed = False
        while True:
            mark = self._look()
            if mark is None or (mark == self._mark and not force):
                return has_changed
            has_changed |= self._mark is not None and mark.current != self._mark.current
            self._mark, force = mark, False
            if self._is_live(mark.version):
                self._set_refusal(None)
            else:
                self._try(mark.version)

    def _look(self) -> _Mark | None:
        """Reads CURRENT; None if it cannot be read, as sometimes on a network disk; then nothing changes."""
        try:
            version = self._root.named()
            current = _identity(self._root.path / CURRENT_FILE)
        except ArtifactNotFoundError as error:
            version, why = "", str(error)
        else:
            why = "CURRENT does not name a version"
        if not version:
            if self._is_readable:
                _logger.warning("CURRENT cannot be read", extra={"fields": {"reason": why}})
            self._is_readable = False
            return None
        self._is_readable = True
        return _Mark(version, current, self._manifest_of(version))

    def _manifest_of(self, version: str) -> Identity | None:
        try:
            return _identity(self._root.folder(version) / MANIFEST_FILE)
        except ArtifactNotFoundError:
            return None

    def _is_live(self, version: str) -> bool:
        live = self._resources.live()
        try:
            return version == live.version and self._root.manifest(version).hash == live.manifest.hash
        except ArtifactError:
            return False

    def _try(self, version: str) -> None:
        with self._group.turn(self._loaders):
            self._open(version)

    def _open(self, version: str) -> None:
        started = time.perf_counter()
        try:
            opened = self._resources.open(version)
        except (GlowError, OSError) as error:
            code = error.code if isinstance(error, GlowError) else "unreadable"
            self._refuse(version, code, str(error))
        except Exception:  # any error: the live version stays
            _logger.exception("unexpected error while opening %s", version)
            self._refuse(version, GlowError.code, "unexpected error; see the log")
        else:
            self._exchange(opened, time.perf_counter() - started)

    def _exchange(self, opened: OpenVersion, seconds: float) -> None:
        version, before = opened.index.version, self._resources.live().version
        fields = {"index": version, "before": before, "seconds": round(seconds, 3)}
        self._metrics.load_seconds.observe(seconds)
        # Only a change back supersedes: otherwise, versions published faster than they load would never be served.
        mark = self._look()
        if mark is not None and mark.version == before != version:
            self._outcomes[SUPERSEDED].inc()
            _logger.info("superseded", extra={"fields": fields})
            return
        self._outcomes[DONE].inc()
        self._set_refusal(None)
        self._resources.use(opened)
        _logger.info("swapped", extra={"fields": {**fields, "documents": opened.index[STORED_FIELDS].count}})

    def _refuse(self, version: str, code: str, reason: str) -> None:
        reason = reason.replace(f"{self._root.path}/", "")[:MAX_REASON_CHARACTERS]
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._outcomes[REFUSED].inc()
        self._set_refusal(Refusal(version, code, reason, at))
        fields = {"index": version, "live": self._resources.live().version, "code": code, "reason": reason}
        _logger.error("refused", extra={"fields": fields})

    def _set_refusal(self, refusal: Refusal | None) -> None:
        self._metrics.refused.set(0 if refusal is None else 1)
        self.refusal = refusal


def _identity(path: Path) -> Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
