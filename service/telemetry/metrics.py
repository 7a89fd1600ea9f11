"""Prometheus metrics, which `docs/monitoring.md` lists, and the response of `/metrics`, which any worker makes for all.

A single process keeps its metrics in memory. Several processes write theirs to memory-mapped files in one folder, and the
requested worker sums them. `prometheus_client` chooses between the two by an environment variable, when it is imported.
The supervisor makes the folder, sets the variable and repeats the choice before it forks a worker (`metrics_folder`).
Each gauge sets how to combine the running workers (`live…`): by sum, minimum, maximum, or the most recent value.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from glow import __version__
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CREATED = "glow_index_created_timestamp_seconds"
INDEX_INFO = "glow_index_info"
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - the folder made in it is private (mode 0700) and of a random name


@contextmanager
def metrics_folder(workers: int) -> Iterator[None]:
    """Makes processes that start in the block share their metrics through a private folder.

    It is in memory if possible: a write to a mapped file on a full disk would kill the process.
    """
    if workers == 1:
        yield
        return
    parent = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK | os.X_OK) else None
    folder = tempfile.mkdtemp(prefix=f"glow-metrics-{os.getpid()}-", dir=parent)
    os.environ[FOLDER_VARIABLE] = folder
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        del os.environ[FOLDER_VARIABLE]
        values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
        shutil.rmtree(folder, ignore_errors=True)


class _Scrape(Collector):
    """The metrics of all running workers, by `prometheus_client`'s multi-process mode, and figures of their processes."""

    def __init__(self, own: CollectorRegistry) -> None:
        self._own = own

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics, without outdated series, and with the age of the index."""
        folder = os.environ.get(FOLDER_VARIABLE)
        families, processes = self._own.collect(), {os.getpid(): _process(os.getpid())}
        if folder and values.ValueClass is not values.MutexValue:
            # A starting worker may have made a file without writing to it.
            files = [path for path in Path(folder).glob("*.db") if path.exists() and path.stat().st_size]
            processes = {pid: _process(pid) for path in files for pid in (int(path.stem.rpartition("_")[2]),)}
            for pid in (pid for pid, process in processes.items() if process is None):
                with suppress(FileNotFoundError):  # another worker removed its gauges at the same time
                    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
            files = [path for path in files if path.exists()]
            families = MultiProcessCollector.merge([*map(str, files)])  # type: ignore[no-untyped-call]
        for family in families:
            if family.name in (CREATED, INDEX_INFO):
                # Shared files keep all series; those of an index that is no longer live are 0.
                family.samples = [sample for sample in family.samples if sample.value]
            yield family
            if family.name == CREATED:
                age = GaugeMetricFamily("glow_index_age_seconds", "Time since the live index was built.")
                for sample in family.samples:
                    age.add_metric([], max(time.time() - sample.value, 0.0))
                yield age
        yield from _processes({pid: process for pid, process in processes.items() if process is not None})


def _process(pid: int) -> tuple[int, int, float] | None:
    """Private memory, memory of mapped files (bytes) and CPU time (seconds) of a process; None if it has ended."""
    try:
        sizes = Path(f"/proc/{pid}/statm").read_bytes().split()
        # The command's name may contain any character; the fields after its closing parenthesis are regular.
        times = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    resident, shared = int(sizes[1]), int(sizes[2])
    page, ticks = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    # Without memory, it has ended, and its parent has not waited for it yet.
    figures = (resident - shared) * page, shared * page, (int(times[11]) + int(times[12])) / ticks
    return figures if resident else None


def _processes(processes: dict[int, tuple[int, int, float]]) -> Iterator[Metric]:
    yield GaugeMetricFamily("glow_workers", "Processes that serve.", value=len(processes))
    memory = GaugeMetricFamily(
        "glow_process_resident_bytes",
        "Memory of one worker: its own (private), and files that workers map together (shared).",
        labels=("pid", "kind"),
    )
    cpu = CounterMetricFamily("glow_process_cpu_seconds", "CPU time of one worker.", labels=("pid",))
    for pid, (private, shared, seconds) in sorted(processes.items()):
        memory.add_metric([str(pid), "private"], private)
        memory.add_metric([str(pid), "shared"], shared)
        cpu.add_metric([str(pid)], seconds)
    yield from (memory, cpu)


# From a tenth of a millisecond (preprocessing) to seconds (overload).
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LOAD_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_OverWorkers = Literal["livesum", "livemin", "livemax", "livemostrecent"]


class Metrics:
    """The metrics, in a separate registry, so that a process can have several apps; labels are of closed lists."""

    def __init__(self) -> None:
        # They would add a second, unused series to each one.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._make_counters()
        self._make_histograms()
        self._make_gauges()
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
        self.swaps = counter("glow_index_swaps", "Attempts at a hot swap of the live index.", "outcome")
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
        self.load_seconds = histogram(
            "glow_index_load_seconds", "Time to open a version beside the live one.", _LOAD_BUCKETS_S
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
        self.synonyms_refused = gauge(
            "glow_synonyms_refused", "1 while the file of synonyms is broken and older ones serve.", "livemax"
        )
        self.refused = gauge(
            "glow_index_refused", "1 while CURRENT names a refused version, otherwise 0.", "livemax"
        )
        self.versions_open = gauge(
            "glow_index_versions_open", "Index versions in memory; 2 during a hot swap.", "livemax"
        )
        build = gauge("glow_build_info", "The running version; always 1.", "livemax", "version")
        build.labels(__version__).set(1)

    def use(self, index: Index) -> None:
        """Records the live index."""
        live = (index.version, index.model)
        if self._live not in (None, live):
            self.index_info.labels(*self._live).set(0)  # `/metrics` omits zeros
        self._live = live
        self.index_info.labels(*live).set(1)
        self.index_documents.set(index[STORED_FIELDS].count)
        created = 0.0  # unknown
        with suppress(ValueError):
            moment = datetime.fromisoformat(index.manifest.created)
            created = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        self.index_created.set(created)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Counts a request with a response."""
        self.requests.labels(route, str(status)).inc()
        self.request_seconds.labels(route).observe(seconds)

    def stages(self, timings_ms: dict[str, float]) -> None:
        """Records the stages of one search, in milliseconds."""
        for stage, milliseconds in timings_ms.items():
            self.stage_seconds.labels(stage).observe(milliseconds / 1_000)

    def truncate(self, field: str) -> None:
        """Counts a text that was cut at its token limit."""
        self.truncated.labels(field).inc()

    def text(self) -> bytes:
        """All metrics of all workers in Prometheus's text format; takes about two milliseconds, plus one per worker."""
        return generate_latest(_Scrape(self.registry))


# The events of the metric `glow_cache_events_total{tier, kind, event}`.

Kind = Literal["vector", "response"]
Tier = Literal["local", "redis"]

# docs/performance.md#cache-responses-in-memory explains them.
EVENTS: dict[Tier, tuple[str, ...]] = {
    "local": ("hit", "miss", "store", "evict", "skipped"),
    "redis": ("hit", "miss", "poisoned", "store", "error", "timeout", "skipped", "dropped"),
}


def tier_events(metrics: Metrics, tier: Tier, kind: Kind) -> Callable[[str], None]:
    """A function that counts one event of `EVENTS[tier]`."""
    counters = {event: metrics.cache_events.labels(tier, kind, event) for event in EVENTS[tier]}
    return lambda event: counters[event].inc()


# Measures delays of the event loop: work that blocks it delays all clients of the process.

TICK_S = 0.02
"""Interval of measurements, and so their precision, in seconds."""
WINDOW_S = 10.0
"""The gauge shows the longest delay of this time, so that a scrape does not miss it, in seconds."""


async def measure_loop_lag(gauge: Gauge) -> None:
    """Sleeps repeatedly, and records how late each wake-up is, until it is canceled."""
    delays: deque[float] = deque(maxlen=round(WINDOW_S / TICK_S))
    while True:
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        delays.append(max(time.perf_counter() - due, 0.0))
        gauge.set(max(delays))
