"""Prometheus metrics; `docs/monitoring.md` lists them.

Each process counts separately; `service/telemetry/exposition.py` combines several. Each gauge sets how: over the running
workers (`live…`), by sum, minimum, maximum, or the most recent value.
"""

from datetime import UTC, datetime
from typing import Generic, Literal, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from glow import __version__
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow_service.telemetry.exposition import CREATED, INDEX_INFO, exposition

__all__ = ["Metrics"]

# From a tenth of a millisecond (preprocessing) to seconds (overload).
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LOAD_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_OverWorkers = Literal["livesum", "livemin", "livemax", "livemostrecent"]
_T = TypeVar("_T", Counter, Histogram)


class _Children(dict[tuple[str, ...], _T], Generic[_T]):
    """The series of a metric by labels, each looked up once, because `labels()` costs more than counting."""

    def __init__(self, metric: _T) -> None:
        super().__init__()
        self._metric: _T = metric

    def __missing__(self, labels: tuple[str, ...]) -> _T:
        child = self[labels] = self._metric.labels(*labels)
        return child


class Metrics:
    """The metrics, in a separate registry, so that a process can have several apps.

    `request`, `stages` and `truncate` are the cheap way to count. Labels must come from closed lists.
    """

    def __init__(self) -> None:
        # They would add a second, unused series to each one.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._make_counters()
        self._make_histograms()
        self._make_gauges()
        self._make_swap()
        self._requests = _Children(self.requests)
        self._request_seconds = _Children(self.request_seconds)
        self._stage_seconds = _Children(self.stage_seconds)
        self._truncated = _Children(self.truncated)
        self._live: tuple[str, str] | None = None

    def _make_counters(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        self.requests = counter("glow_requests", "Requests that got a response.", "route", "status")
        self.truncated = counter("glow_truncated", "Texts that exceeded their token limit.", "field")
        self.rejected = counter(
            "glow_rejected", "Requests that were refused, or had a search that missed its deadline.", "reason"
        )
        self.cache_events = counter(
            "glow_cache_events",
            "Cache events: hit, miss, store, evict, skipped; with Redis also poisoned, error, timeout, dropped.",
            "tier",
            "kind",
            "event",
        )
        self.query_log_lost = counter("glow_query_log_lost", "Queries that could not be logged.", "reason")
        self.feedback = counter("glow_feedback", "Clicks and relevance judgments received.", "kind")
        self.feedback_lost = counter(
            "glow_feedback_lost", "Clicks and relevance judgments that could not be logged.", "reason"
        )
        self.feedback_refused = counter(
            "glow_feedback_refused", "Clicks and relevance judgments that were refused.", "reason"
        )
        self.dense_unavailable = counter(
            "glow_dense_unavailable", "Searches for which the vector store did not respond."
        )
        self.left_out = counter(
            "glow_left_out", "Searches that skipped a stage because of their deadline.", "stage"
        )
        self.spans_lost = counter("glow_spans_lost", "Spans that the trace collector did not accept.")

    def _make_histograms(self) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

        self.request_seconds = histogram(
            "glow_request_seconds", "Time from a request's first byte to its response.", _BUCKETS_S, "route"
        )
        self.stage_seconds = histogram(
            "glow_stage_seconds", "Time of a stage of a search.", _BUCKETS_S, "stage"
        )
        self.batch_queries = histogram(
            "glow_batch_queries", "Queries per batch of the query encoder.", (1, 2, 4, 8, 16, 32, 64)
        )
        self.padding_ratio = histogram(
            "glow_batch_padding_ratio",
            "Fraction of padding among a batch's tokens.",
            (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
        )

    def _make_gauges(self) -> None:
        def gauge(name: str, text: str, over_workers: _OverWorkers, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry, multiprocess_mode=over_workers)

        self.in_flight = gauge("glow_requests_in_flight", "Requests in work.", "livesum")
        self.loop_lag = gauge(
            "glow_loop_lag_seconds", "Longest delay of the event loop in the last ten seconds.", "livemax"
        )
        self.queue_depth = gauge("glow_queue_depth", "Queries that wait for the query encoder.", "livesum")
        self.ready = gauge("glow_ready", "1 if every worker is ready, otherwise 0.", "livemin")
        self.index_info = gauge(INDEX_INFO, "The live index; always 1.", "livemax", "version", "model")
        self.index_documents = gauge("glow_index_documents", "Documents in the live index.", "livemostrecent")
        self.index_created = gauge(CREATED, "Build time of the live index, as Unix time.", "livemostrecent")
        build = gauge("glow_build_info", "The running version; always 1.", "livemax", "version")
        build.labels(__version__).set(1)

    def _make_swap(self) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, registry=self.registry, multiprocess_mode="livemax")

        self.swaps = Counter(
            "glow_index_swaps",
            "Attempts at a hot swap of the live index.",
            ("outcome",),
            registry=self.registry,
        )
        self.load_seconds = Histogram(
            "glow_index_load_seconds",
            "Time to open a version beside the live one.",
            buckets=_LOAD_BUCKETS_S,
            registry=self.registry,
        )
        self.refused = gauge("glow_index_refused", "1 while CURRENT names a refused version, otherwise 0.")
        self.versions_open = gauge(
            "glow_index_versions_open", "Index versions in memory; 2 during a hot swap."
        )

    def use(self, index: Index) -> None:
        """Records the live index."""
        live = (index.version, index.model)
        if self._live not in (None, live):
            self.index_info.labels(*self._live).set(0)  # `/metrics` omits zeros
        self._live = live
        self.index_info.labels(*live).set(1)
        self.index_documents.set(index[STORED_FIELDS].count)
        self.index_created.set(_unix_time(index.manifest.created))

    def request(self, route: str, status: int, seconds: float) -> None:
        """Counts a request with a response.

        Args:
            route: path of its route, such as `/documents/{id}`.
            status: HTTP status.
            seconds: time from its first byte to its response.
        """
        self._requests[route, str(status)].inc()
        self._request_seconds[(route,)].observe(seconds)

    def stages(self, timings_ms: dict[str, float]) -> None:
        """Records the stages of one search, in milliseconds."""
        for stage, milliseconds in timings_ms.items():
            self._stage_seconds[(stage,)].observe(milliseconds / 1_000)

    def truncate(self, field: str) -> None:
        """Counts a text that was cut at its token limit."""
        self._truncated[(field,)].inc()

    def text(self) -> bytes:
        """All metrics of all workers in Prometheus's text format; takes about two milliseconds, plus one per worker."""
        return exposition(self.registry)


def _unix_time(created: str) -> float:
    """Converts ISO 8601 to Unix time, without a time zone as UTC; 0 (unknown) if it is invalid."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
