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
    """A search that was answered: its body as it came, and its result."""

    body: dict[str, Any]
    result: ResultFragment


class Shadow:
    """Compares a candidate with the live version.

    Args:
        root: where the versions lie.
        resources: which version is live.
        metrics: told what was found.
        limits: what a request may ask for.
        version: the candidate's name, or `newest`; "" for none.
        share: of the searches that it runs, in [0, 1].
        device: where its tower and vectors live.
        threads: that one search may use, >= 1.
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
        """Begins, where a candidate is wanted."""
        if self._version and self._bound:
            # A daemon: a stop must not wait until a large index is loaded.
            threading.Thread(target=self._run, name="shadow", daemon=True).start()

    def offer(self, request_id: str, body: dict[str, Any], result: ResultFragment) -> None:
        """Hands over a search that was answered, if it is in the sample; some microseconds, and no failure.

        Args:
            request_id: a hash of it decides.
            body: the request as it came.
            result: what was found.
        """
        if self._candidate is None or zlib.crc32(b"shadow" + request_id.encode()) >= self._bound:
            return
        if self._waiting.qsize() >= MAX_WAITING:
            self._outcomes[DROPPED].inc()
        else:
            self._waiting.put(_Answered(body, result))

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
        """The candidate's name; "" where there is none, or it is live."""
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
            call = replace(checked.call, facets=(), highlight=None, explain=None)  # they change no ranking
            answer = SearchSession(candidate, call).run()
        except GlowError as error:  # such as a filter by a field that it has not
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
    """The share of hits that both have, of the longer list, in [0, 1]; 1 where neither has any."""
    longest = max(len(ours), len(theirs))
    return len(ours.keys() & theirs.keys()) / longest if longest else 1.0


def mean_difference(ours: Scores, theirs: Scores) -> float | None:
    """The mean absolute difference of the scores of hits that both have; None where there are none."""
    both = ours.keys() & theirs.keys()
    return sum(abs(ours[hit] - theirs[hit]) for hit in both) / len(both) if both else None


def _live_scores(result: ResultFragment) -> Scores:
    return {hit["id"]: hit["score"] for hit in result.hits()[:DEPTH]}


def _scores(answer: SearchAnswer) -> Scores:
    return {hit.document.id: hit.score for hit in answer.hits[:DEPTH]}
