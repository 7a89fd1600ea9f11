"""The shadow: a candidate version that runs a share of the searches beside the live one, to see what it would answer.

A search is handed over once it is answered, and nobody waits for it: the line is short, what finds it full is dropped
and counted, and the one thread that works it off has the lowest priority. What a candidate cannot do, down to being
opened, costs a line in the log and a count.
"""

import logging
import os
import queue
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from glow.artifact import IndexRoot
from glow.errors import ArtifactError, GlowError
from glow.search import Index, set_threads
from service.api.checks import check_search
from service.calls import SearchAnswer
from service.errors import NotReadyError
from service.metrics import Metrics
from service.pipeline import search
from service.resources import Resources
from service.settings import Settings

__all__ = ["DEPTH", "NEWEST", "OUTCOMES", "Shadow", "mean_difference", "overlap"]

NEWEST = "newest"
DEPTH = 10
"""Hits that are compared."""
COMPARED, DROPPED, FAILED = "compared", "dropped", "failed"
OUTCOMES = (COMPARED, DROPPED, FAILED)
MAX_WAITING = 32
RECHECK_S = 2.0
"""How often to see whether there is another candidate."""
LOWEST_PRIORITY = 19
Scores = Mapping[str, float]
"""Id -> score of the first hits, best first."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answered:
    """A search that was answered: its body as it came, and the members of its answer as JSON."""

    body: dict[str, Any]
    page: bytes


class Shadow:
    """Compares a candidate with the live version.

    Args:
        settings: `shadow_version`, `shadow_share`, and where the index is.
        resources: which version is live.
        metrics: told what was found.
    """

    def __init__(self, settings: Settings, resources: Resources, metrics: Metrics) -> None:
        self._settings = settings
        self._resources = resources
        self._metrics = metrics
        self._root = IndexRoot(settings.index_root)
        self._bound = int(settings.shadow_share * 2**32)
        self._waiting: queue.SimpleQueue[_Answered | None] = queue.SimpleQueue()
        self._candidate: Index | None = None
        self._refused = ""
        self._outcomes = {outcome: metrics.shadow_searches.labels(outcome) for outcome in OUTCOMES}
        self._closed = False

    def start(self) -> None:
        """Begins, where a candidate is wanted."""
        if self._settings.shadow_version and self._bound:
            # A daemon: a stop must not wait until a large index is loaded.
            threading.Thread(target=self._run, name="shadow", daemon=True).start()

    def offer(self, request_id: str, body: dict[str, Any], page: bytes) -> None:
        """Hands over a search that was answered, if it is in the sample; some microseconds, and no failure.

        Args:
            request_id: a hash of it decides.
            body: the request as it came.
            page: the members of its answer as JSON, without braces.
        """
        if self._candidate is None or zlib.crc32(b"shadow" + request_id.encode()) >= self._bound:
            return
        if self._waiting.qsize() >= MAX_WAITING:
            self._outcomes[DROPPED].inc()
        else:
            self._waiting.put(_Answered(body, page))

    def close(self) -> None:
        """Ends the thread once it is done with what it does."""
        self._closed = True
        self._waiting.put(None)

    def _run(self) -> None:
        os.setpriority(
            os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY
        )  # of this thread, on Linux
        set_threads(1)
        checked = float("-inf")
        while not self._closed:
            try:
                if time.monotonic() - checked >= RECHECK_S:
                    self._choose()
                    checked = time.monotonic()
                self._work()
            except Exception:  # whatever it is, the service goes on
                self._outcomes[FAILED].inc()
                _logger.exception("unexpected error of the shadow")

    def _work(self) -> None:
        try:
            answered = self._waiting.get(timeout=RECHECK_S)
        except queue.Empty:
            return
        if answered is not None and self._candidate is not None:
            self._compare(self._candidate, answered)

    def _choose(self) -> None:
        """Opens the candidate that is wanted now, and lets go of another one before."""
        wanted = self._wanted()
        if self._candidate is not None and self._candidate.version != wanted:
            self._metrics.shadow_info.labels(self._candidate.version).set(0)  # it is not shown then
            self._candidate = None
        if not wanted or self._candidate is not None or wanted == self._refused:
            return
        try:
            settings, live = self._settings, self._resources.live()
            folder = self._root.folder(wanted)
            self._candidate = Index.open(folder, settings.device, settings.encode_threads, like=live)
        except (GlowError, OSError) as error:
            self._refused = wanted
            self._outcomes[FAILED].inc()
            code = error.code if isinstance(error, GlowError) else "unreadable"
            fields = {"index": wanted, "code": code, "reason": str(error)}
            _logger.error("candidate refused", extra={"fields": fields})
            return
        self._metrics.shadow_info.labels(wanted).set(1)
        _logger.info("candidate", extra={"fields": {"index": wanted, "share": self._settings.shadow_share}})

    def _wanted(self) -> str:
        """The candidate's name; "" where there is none, or it is live."""
        try:
            live = self._resources.live().version
        except NotReadyError:
            return ""
        wanted = self._settings.shadow_version
        if wanted == NEWEST:
            try:
                wanted = max(self._root.versions(), default="")
            except (ArtifactError, OSError):
                return ""
        return "" if wanted == live else wanted

    def _compare(self, candidate: Index, answered: _Answered) -> None:
        started = time.perf_counter()
        try:
            checked = check_search(answered.body, self._settings, candidate)
            call = replace(checked.call, facets=(), highlight=None, explain=None)  # they change no ranking
            found = search(candidate, call)
        except GlowError as error:  # such as a filter by a field that it has not
            self._outcomes[FAILED].inc()
            _logger.warning("candidate failed", extra={"fields": {"code": error.code}})
            return
        self._metrics.shadow_seconds.observe(time.perf_counter() - started)
        ours, theirs = _live_scores(answered.page), _scores(found)
        self._metrics.shadow_overlap.observe(overlap(ours, theirs))
        difference = mean_difference(ours, theirs)
        if difference is not None:
            self._metrics.shadow_difference.observe(difference)
        self._outcomes[COMPARED].inc()


def overlap(ours: Scores, theirs: Scores) -> float:
    """The share of hits that both have, of the longer list, in [0, 1]; 1 where neither has any."""
    longest = max(len(ours), len(theirs))
    return len(ours.keys() & theirs.keys()) / longest if longest else 1.0


def mean_difference(ours: Scores, theirs: Scores) -> float | None:
    """The mean absolute difference of the scores of hits that both have; None where there are none."""
    both = ours.keys() & theirs.keys()
    return sum(abs(ours[hit] - theirs[hit]) for hit in both) / len(both) if both else None


def _live_scores(page: bytes) -> Scores:
    hits = orjson.loads(b"{" + page + b"}")["hits"][:DEPTH]
    return {hit["id"]: hit["score"] for hit in hits}


def _scores(answer: SearchAnswer) -> Scores:
    return {hit.document.id: hit.score for hit in answer.hits[:DEPTH]}
