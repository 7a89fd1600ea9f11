"""OpenTelemetry traces: a span per request, by its instrumentation of FastAPI, and one per stage of a search."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fastapi import FastAPI

from glow import __version__
from glow.errors import DependencyError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

EXPORT_TIMEOUT_S, CLOSE_WITHIN_S = 5, 3.0
_UNTRACED = r"^\w+://[^/]*/($|healthz|readyz|metrics|info|admin|docs|openapi\.json|problems/|static/)"


class Tracer:
    """Traces the requests of an app; without an endpoint, it does nothing and does not import OpenTelemetry."""

    def __init__(
        self,
        endpoint: str,  # HTTP address of the collector; "" for none
        share: float,  # fraction of the requests to trace, in [0, 1]; the header `traceparent` overrides it
        count_lost: Callable[[int], None],
    ) -> None:
        self._provider = _start(endpoint.rstrip("/"), share, count_lost) if endpoint else None

    def instrument(self, app: FastAPI) -> None:
        """Makes a span of every request of the app that is work."""
        if self._provider is not None:
            from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

            FastAPIInstrumentor.instrument_app(
                app,
                tracer_provider=self._provider,
                excluded_urls=_UNTRACED,
                exclude_spans=["receive", "send"],
                # Without a query's text, and the address of a person.
                server_request_hook=lambda span, _: span.set_attributes(
                    {"url.query": "", "client.address": ""}
                ),
            )

    def note(self, attributes: Mapping[str, str], timings_ms: Mapping[str, float]) -> None:
        """Adds attributes and consecutive stages, the last of which ends now, to the span of the current request."""
        if self._provider is None:
            return
        from opentelemetry.trace import get_current_span

        span = get_current_span()
        if span.is_recording():
            span.set_attributes({name: value for name, value in attributes.items() if value})
            tracer = self._provider.get_tracer("glow", __version__)
            at = time.time_ns() - round(sum(timings_ms.values()) * 1e6)
            for stage, milliseconds in timings_ms.items():
                child = tracer.start_span(stage, start_time=at)
                at += round(milliseconds * 1e6)
                child.end(at)

    def close(self) -> None:
        """Sends waiting spans; returns within seconds even if the collector does not respond."""
        if self._provider is not None:
            thread = threading.Thread(target=self._provider.shutdown, daemon=True)
            thread.start()
            thread.join(CLOSE_WITHIN_S)


def _start(url: str, share: float, count_lost: Callable[[int], None]) -> "TracerProvider":
    # The stable names of attributes; otherwise, a deprecated one would contain the whole URL.
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "http"
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation import fastapi  # noqa: F401 - `instrument` needs it
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
    except ImportError as error:
        message = f"--otel-endpoint needs {error.name}; run `pip install 'glow-retrieval[otel]'`"
        raise DependencyError(message) from error

    class Exporter(OTLPSpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            count_lost(0 if result is SpanExportResult.SUCCESS else len(spans))
            return result

    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # not each attempt
    url = url if url.endswith("/v1/traces") else f"{url}/v1/traces"
    resource = Resource.create({"service.name": "glow", "service.version": __version__})
    provider = TracerProvider(ParentBasedTraceIdRatio(share), resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter(url, timeout=EXPORT_TIMEOUT_S)))
    return provider
