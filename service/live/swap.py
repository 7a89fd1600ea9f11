"""The hot swap, which makes the version that CURRENT names live, and the thread that does it.

The new version is opened, verified and warmed up while the live one serves, and then replaces it; requests in flight
keep the old one. A version that cannot be opened is refused: the live one stays; `/readyz` and the log have the reason.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from glow.artifact import CURRENT_FILE, MANIFEST_FILE, IndexRoot
from glow.errors import ArtifactError, ArtifactNotFoundError, GlowError
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import set_threads
from glow_service.live.resources import OpenVersion, Resources
from glow_service.live.workers import WorkerGroup
from glow_service.telemetry.metrics import Metrics

DONE, REFUSED, SUPERSEDED = "done", "refused", "superseded"
OUTCOMES = (DONE, REFUSED, SUPERSEDED)
"""Outcomes in `glow_index_swaps_total`; superseded: CURRENT named the live version again before the new one was open."""
MAX_REASON_CHARACTERS = 500
Identity = tuple[int, int, int]
"""Inode, modification time and size, which differ after a file was written."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A version that CURRENT names, but that cannot be served."""

    version: str
    code: str  # code of the error
    reason: str  # message of the error, without paths of this machine
    at: str  # time of the refusal, UTC, ISO 8601


@dataclass(frozen=True, slots=True)
class _Mark:
    """Result of a check of CURRENT; an unchanged result needs no action."""

    version: str
    current: Identity | None
    manifest: Identity | None


class Swap:
    """Follows CURRENT; only one thread may call `follow`."""

    def __init__(
        self, index_root: Path, resources: Resources, metrics: Metrics, group: WorkerGroup, loaders: int = 1
    ) -> None:
        self._root, self._resources, self._metrics = IndexRoot(index_root), resources, metrics
        self._group, self._loaders = group, loaders
        self._mark: _Mark | None = None
        self._is_readable = True
        self.refusal: Refusal | None = None
        self._outcomes = {outcome: metrics.swaps.labels(outcome) for outcome in OUTCOMES}

    def follow(self, *, force: bool = False) -> None:
        """Swaps until CURRENT's version is live or refused.

        A refused version is tried again after CURRENT or its manifest was written, or with `force`.
        """
        while (mark := self._look()) is not None and (force or mark != self._mark):
            self._mark, force = mark, False
            if self._is_live(mark.version):
                self._set_refusal(None)
            else:
                with self._group.turn(self._loaders):
                    self._open(mark.version)

    def _look(self) -> _Mark | None:
        """Reads CURRENT; None if it cannot be read, as sometimes on a network disk; then nothing changes."""
        path, why = self._root.path / CURRENT_FILE, "CURRENT does not name a version"
        current = _identity(path)
        try:
            version = self._root.named()
        except ArtifactNotFoundError as error:
            version, why = "", str(error)
        if not version:
            if self._is_readable:
                _logger.warning("CURRENT cannot be read", extra={"fields": {"reason": why}})
            self._is_readable = False
            return None
        self._is_readable = True
        if _identity(path) != current:  # replaced meanwhile: the name may be of the one before or after
            return self._look()
        with suppress(ArtifactNotFoundError):
            return _Mark(version, current, _identity(self._root.folder(version) / MANIFEST_FILE))
        return _Mark(version, current, None)

    def _is_live(self, version: str) -> bool:
        live = self._resources.live()
        try:
            return version == live.version and self._root.manifest(version).hash == live.manifest.hash
        except ArtifactError:
            return False

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


# The thread that loads the index at startup and then checks CURRENT, regularly and on request. All loading happens in
# this thread, so that a new version reuses the allocator's memory of a previous one.

POLL_S = 0.25
"""Interval of checks of CURRENT, for requests of other workers, and for freed versions, in seconds."""
JITTER = 0.2
"""Largest relative variation of the interval, so that workers do not check at the same times."""


class Watcher:
    """Hot-swaps the live index when `CURRENT` changes."""

    def __init__(self, resources: Resources, swap: Swap, group: WorkerGroup, threads: int) -> None:
        self._resources, self._swap, self._group = resources, swap, group
        self._threads = threads  # of one search
        self._changed = threading.Condition()
        self._asked: list[Future[None]] = []
        self._is_closed = False
        self._request = group.asked()

    def run(self, load: Callable[[], bool]) -> None:
        """Runs the thread's work until `close`; `load` opens the first version and returns whether it succeeded."""
        set_threads(self._threads)  # OpenMP's setting is per calling thread
        if not load():
            return
        self._note()
        while (asked := self._wait()) is not None:
            try:
                self._look(is_asked=bool(asked))
            except Exception:  # any error: the next check must happen
                _logger.exception("unexpected error of the watcher")
            for future in asked:
                if future.set_running_or_notify_cancel():
                    future.set_result(None)

    def look(self) -> "Future[None]":
        """Requests a check that also tries a refused version again; the future completes after it."""
        future: Future[None] = Future()
        with self._changed:
            if self._is_closed:
                future.cancel()
            self._asked.append(future)
            self._changed.notify()
        return future

    def close(self) -> None:
        """Stops the thread, without waiting for a load in progress; cancels requested checks."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            for future in self._asked:
                future.cancel()

    def _wait(self) -> "list[Future[None]] | None":
        """Waits until a check is due; returns the futures of requested checks, or None after `close`."""
        with self._changed:
            seconds = POLL_S * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 (no secret is made of it)
            self._changed.wait_for(lambda: self._asked or self._is_closed, seconds)
            asked, self._asked = self._asked, []
            return None if self._is_closed else asked

    def _look(self, *, is_asked: bool) -> None:
        request = self._group.asked()
        self._swap.follow(force=is_asked or request != self._request)
        self._request = request
        self._resources.follow_synonyms()
        self._resources.held.tidy()
        self._note()

    def _note(self) -> None:
        refusal = self._swap.refusal
        self._group.note(self._resources.live().version, refusal.code if refusal else "", self._request)
