"""OpenTelemetry traces: one span per request and one per stage, made after the request.

A running request only collects what its log line needs. A sample of the requests becomes spans, which an
OpenTelemetry thread sends to a collector (OTLP over HTTP). Without `otel_endpoint`, OpenTelemetry is not imported.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from glow import __version__
from glow.errors import ConfigError, DependencyError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

EXPORT_TIMEOUT_S = 5
CLOSE_WITHIN_S = 3.0
MAX_WAITING_SPANS = 4_096
SEND_EVERY_MS = 1_000
_TRACES_PATH = "/v1/traces"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request with a response."""

    method: str
    route: str  # path of its route
    status: int
    request_id: str  # id as in the log
    took_ms: float  # its duration until now, in milliseconds
    timings_ms: Mapping[str, float]  # its consecutive stages, in order; the last one ended about now
    index_version: str = ""  # version of the searched index; "" if there is none
    code: str = ""  # code of the problem; "" if there is none
    traceparent: str = ""  # the header of that name; "" if there is none


class Tracer:
    """Makes spans of finished requests; does nothing without an endpoint."""

    def __init__(
        self,
        endpoint: str,  # HTTP address of the collector; "" for none
        share: float,  # fraction of the requests to trace, in [0, 1]
        count_lost: Callable[[int], None] = lambda _: None,
        seed: int | None = None,  # seed of the sample; None for a random one
    ) -> None:
        self._share = share
        self._random = random.Random(seed)  # noqa: S311 - chooses a sample, keeps no secret
        self._count_lost = count_lost
        self._is_failing = False
        self._sending = threading.Lock()
        self._provider: TracerProvider | None = None
        if endpoint:
            self._provider = _provider(_traces_url(endpoint), self._sent)

    @property
    def is_on(self) -> bool:
        """Whether there is an endpoint."""
        return self._provider is not None

    def wants(self, traceparent: str) -> bool:
        """Whether to trace a request: as its `traceparent` says, otherwise by sampling."""
        if self._provider is None:
            return False
        if not traceparent:
            return self._random.random() < self._share
        from opentelemetry.trace import get_current_span

        parent = get_current_span(_remote_context(traceparent)).get_span_context()
        return parent.trace_flags.sampled if parent.is_valid else self._random.random() < self._share

    def record(self, request: FinishedRequest) -> None:
        """Makes the spans of a request; takes about 0.2 ms and never raises."""
        try:
            self._record(request)
        except Exception:  # any error: the response was sent, and a lost trace is only logged
            _logger.exception("a trace could not be made")

    def _record(self, request: FinishedRequest) -> None:
        if self._provider is None:
            return
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        end = time.time_ns()
        start = end - round(request.took_ms * 1e6)
        tracer = self._provider.get_tracer("glow", __version__)
        span = tracer.start_span(
            f"{request.method} {request.route}",
            context=_remote_context(request.traceparent),
            kind=SpanKind.SERVER,
            attributes=_attributes(request),
            start_time=start,
        )
        if request.status >= 500:
            span.set_status(StatusCode.ERROR)
        inside = set_span_in_context(span)
        at = max(end - round(sum(request.timings_ms.values()) * 1e6), start)
        for stage, milliseconds in request.timings_ms.items():
            child = tracer.start_span(stage, context=inside, start_time=at)
            at = min(at + round(milliseconds * 1e6), end)
            child.end(at)
        span.end(end)

    def _sent(self, spans: int, has_failed: bool) -> None:
        with self._sending:  # exports come from several threads
            begins_to_fail = has_failed and not self._is_failing
            self._is_failing = has_failed
        if has_failed:
            self._count_lost(spans)
        if begins_to_fail:
            _logger.error("the trace collector does not accept spans; they are lost until it does")

    def close(self) -> None:
        """Sends waiting spans; returns within seconds even if the collector does not respond."""
        if self._provider is None:
            return
        thread = threading.Thread(target=self._provider.shutdown, name="close-traces", daemon=True)
        thread.start()
        thread.join(CLOSE_WITHIN_S)


def _remote_context(traceparent: str) -> "Context":
    """Context of a W3C `traceparent` header, read by OpenTelemetry; empty if it is invalid, so a new trace starts."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())


def _attributes(request: FinishedRequest) -> dict[str, Any]:
    """Attributes of a span, with OpenTelemetry's names for HTTP and GLOW's for the rest; never the query."""
    attributes = {
        "http.request.method": request.method,
        "http.route": request.route,
        "http.response.status_code": request.status,
        "glow.request_id": request.request_id,
        "glow.index_version": request.index_version,
        "error.type": request.code,
    }
    return {name: value for name, value in attributes.items() if value}


def _traces_url(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"--otel-endpoint (GLOW_OTEL_ENDPOINT): expected an address such as http://collector:4318, "
            f"found {endpoint!r:.80}"
        )
    return endpoint if parts.path.endswith(_TRACES_PATH) else endpoint.rstrip("/") + _TRACES_PATH


def _provider(url: str, sent: Callable[[int, bool], None]) -> "TracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ImportError as error:
        raise DependencyError(
            f"--otel-endpoint needs OpenTelemetry, and {error.name} is not installed; "
            "run `pip install 'glow-retrieval[otel]'`, or leave the setting empty"
        ) from error

    class Exporter(OTLPSpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            sent(len(spans), result is not SpanExportResult.SUCCESS)
            return result

    # OpenTelemetry would log each failed attempt; GLOW logs only the first of consecutive failures.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = Exporter(endpoint=url, timeout=EXPORT_TIMEOUT_S)
    resource = Resource.create({"service.name": "glow", "service.version": __version__})
    # `Tracer.wants` has already sampled.
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, MAX_WAITING_SPANS, SEND_EVERY_MS))
    return provider
