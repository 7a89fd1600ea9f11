"""Prometheus metrics of one process; `docs/http.md` lists them."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from glow.search import Index

__all__ = ["Metrics"]

# From a tenth of a millisecond (preprocessing) to seconds (overload).
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """The metrics, in a registry of their own so that several apps can live in one process."""

    def __init__(self) -> None:
        # They would add a second series to each one, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "glow_requests", "Requests answered.", ("route", "status"), registry=self.registry
        )
        self.request_seconds = Histogram(
            "glow_request_seconds",
            "Time from a request's first byte to its answer.",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.stage_seconds = Histogram(
            "glow_stage_seconds",
            "Time of one stage of a search.",
            ("stage",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.in_flight = Gauge("glow_requests_in_flight", "Requests being answered.", registry=self.registry)
        self.truncated = Counter(
            "glow_truncated",
            "Texts that lost words to their token budget.",
            ("field",),
            registry=self.registry,
        )
        self.rejected = Counter(
            "glow_rejected",
            "Requests refused before or during their work.",
            ("reason",),
            registry=self.registry,
        )
        self.cache_events = Counter(
            "glow_cache_events", "What the caches did.", ("tier", "kind", "event"), registry=self.registry
        )
        self.batch_queries = Histogram(
            "glow_batch_queries",
            "Queries that the tower read at once.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self.registry,
        )
        self.padding_ratio = Histogram(
            "glow_batch_padding_ratio",
            "Share of a batch's tokens that is padding.",
            buckets=(0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "glow_queue_depth", "Queries that wait for the tower.", registry=self.registry
        )
        self.ready = Gauge("glow_ready", "1 when the service is ready, else 0.", registry=self.registry)
        self.index_info = Gauge(
            "glow_index_info", "The live index; always 1.", ("version", "model"), registry=self.registry
        )
        self.index_documents = Gauge(
            "glow_index_documents", "Documents in the live index.", registry=self.registry
        )

    def use(self, index: Index) -> None:
        """Notes which index is live."""
        self.index_info.clear()
        self.index_info.labels(index.version, index.model).set(1)
        self.index_documents.set(len(index.dense))

    def stages(self, timings_ms: dict[str, float]) -> None:
        """Observes the stages of one search, given in milliseconds."""
        for stage, milliseconds in timings_ms.items():
            self.stage_seconds.labels(stage).observe(milliseconds / 1_000)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
