"""The shadow version, which repeats a sample of the searches, to compare its results with the live version's.

A search is queued after its response, and nobody waits for it. If the short queue is full, the search is dropped and
counted. One thread of the lowest priority works on the queue. Failures of the shadow version are only logged
and counted.
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

from glow.artifact import IndexRoot
from glow.errors import ArtifactError, GlowError
from glow.index import Index
from glow.index.vectors import set_threads
from glow.runtime import Device
from glow_service.errors import NotReadyError
from glow_service.fragment import ResultFragment
from glow_service.live.resources import Resources
from glow_service.search import SearchAnswer, SearchLimits, SearchSession, check_search
from glow_service.telemetry import Metrics

__all__ = ["DEPTH", "NEWEST", "OUTCOMES", "Shadow", "mean_difference", "overlap"]

NEWEST = "newest"
DEPTH = 10
"""Number of hits to compare."""
COMPARED, DROPPED, FAILED = "compared", "dropped", "failed"
OUTCOMES = (COMPARED, DROPPED, FAILED)
MAX_WAITING = 32
RECHECK_S = 2.0
"""Interval of checks for another shadow version, in seconds."""
LOWEST_PRIORITY = 19
Scores = Mapping[str, float]
"""Id -> score of the first hits, best first."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answered:
    """A search of the live version: its received body, and its result."""

    body: dict[str, Any]
    result: ResultFragment


class Shadow:
    """Compares a shadow version with the live version.

    Args:
        root: root of the versions.
        resources: resources with the live version.
        metrics: receives the results.
        limits: limits of requests.
        version: the shadow version's name, or `newest`; "" for none.
        share: fraction of the searches to repeat, in [0, 1].
        device: device of its query encoder and vectors.
        threads: threads per search, >= 1.
    """

    def __init__(
        self,
        root: IndexRoot,
        resources: Resources,
        metrics: Metrics,
        limits: SearchLimits,
        *,
        version: str = "",
        share: float = 0.1,
        device: Device = "cpu",
        threads: int = 1,
    ) -> None:
        self._version, self._share = version, share
        self._device, self._threads = device, threads
        self._limits = limits
        self._resources = resources
        self._metrics = metrics
        self._root = root
        self._bound = int(share * 2**32)
        self._waiting: queue.SimpleQueue[_Answered | None] = queue.SimpleQueue()
        self._candidate: Index | None = None
        self._refused = ""
        self._outcomes = {outcome: metrics.shadow_searches.labels(outcome) for outcome in OUTCOMES}
        self._closed = False

    def start(self) -> None:
        """Starts the thread, if a shadow version is configured."""
        if self._version and self._bound:
            # A daemon thread: shutdown must not wait for the loading of a large index.
            threading.Thread(target=self._run, name="shadow", daemon=True).start()

    def offer(self, request_id: str, body: dict[str, Any], result: ResultFragment) -> None:
        """Queues a search if it is in the sample; takes microseconds and never raises.

        Args:
            request_id: its hash decides whether the search is in the sample.
            body: the received body.
            result: result of the live version.
        """
        if self._candidate is None or zlib.crc32(b"shadow" + request_id.encode()) >= self._bound:
            return
        if self._waiting.qsize() >= MAX_WAITING:
            self._outcomes[DROPPED].inc()
        else:
            self._waiting.put(_Answered(body, result))

    def close(self) -> None:
        """Stops the thread after its current work."""
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
            except Exception:  # any error: the service continues
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
        """Closes a shadow version that is no longer wanted, and opens the wanted one."""
        wanted = self._wanted()
        if self._candidate is not None and self._candidate.version != wanted:
            self._metrics.shadow_info.labels(self._candidate.version).set(0)  # `/metrics` omits zeros
            self._candidate = None
        if not wanted or self._candidate is not None or wanted == self._refused:
            return
        try:
            live, folder = self._resources.live(), self._root.folder(wanted)
            self._candidate = Index.open(folder, self._device, self._threads, like=live)
        except (GlowError, OSError) as error:
            self._refused = wanted
            self._outcomes[FAILED].inc()
            code = error.code if isinstance(error, GlowError) else "unreadable"
            fields = {"index": wanted, "code": code, "reason": str(error)}
            _logger.error("candidate refused", extra={"fields": fields})
            return
        self._metrics.shadow_info.labels(wanted).set(1)
        _logger.info("candidate", extra={"fields": {"index": wanted, "share": self._share}})

    def _wanted(self) -> str:
        """Name of the wanted shadow version; "" if there is none, or it is live."""
        try:
            live = self._resources.live().version
        except NotReadyError:
            return ""
        wanted = self._version
        if wanted == NEWEST:
            try:
                wanted = max(self._root.versions(), default="")
            except (ArtifactError, OSError):
                return ""
        return "" if wanted == live else wanted

    def _compare(self, candidate: Index, answered: _Answered) -> None:
        started = time.perf_counter()
        try:
            checked = check_search(answered.body, self._limits, candidate)
            call = replace(checked.call, facets=(), highlight=None, explain=None)  # they keep the ranking
            answer = SearchSession(candidate, call).run()
        except GlowError as error:  # such as a filter by a field that it lacks
            self._outcomes[FAILED].inc()
            _logger.warning("candidate failed", extra={"fields": {"code": error.code}})
            return
        self._metrics.shadow_seconds.observe(time.perf_counter() - started)
        ours, theirs = _live_scores(answered.result), _scores(answer)
        self._metrics.shadow_overlap.observe(overlap(ours, theirs))
        difference = mean_difference(ours, theirs)
        if difference is not None:
            self._metrics.shadow_difference.observe(difference)
        self._outcomes[COMPARED].inc()


def overlap(ours: Scores, theirs: Scores) -> float:
    """Number of common hits, divided by the length of the longer list; 1 if both are empty."""
    longest = max(len(ours), len(theirs))
    return len(ours.keys() & theirs.keys()) / longest if longest else 1.0


def mean_difference(ours: Scores, theirs: Scores) -> float | None:
    """Mean absolute difference of the scores of common hits; None if there are none."""
    both = ours.keys() & theirs.keys()
    return sum(abs(ours[hit] - theirs[hit]) for hit in both) / len(both) if both else None


def _live_scores(result: ResultFragment) -> Scores:
    return {hit["id"]: hit["score"] for hit in result.hits()[:DEPTH]}


def _scores(answer: SearchAnswer) -> Scores:
    return {hit.id: hit.score for hit in answer.found.hits[:DEPTH]}
