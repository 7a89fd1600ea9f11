"""Traces, as a collector receives them: a real OTLP/HTTP server that decodes what comes."""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from glow import __version__
from tests.program import python
from tests.service.asking import Serve, assert_problem, samples
from tests.until import until

wire = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
    reason="traces were not tested: the extra `otel` is not installed",
)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PRIVATE = "wherebeesfindhome"


class Collector:
    """Receives spans over HTTP and keeps them."""

    def __init__(self, status: int) -> None:
        self.paths: set[str] = set()
        self.resources: list[dict[str, str]] = []
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        for group in wire.ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes(group.resource))
            self.spans += [span for scope in group.scope_spans for span in scope.spans]

    def requests(self) -> list[Any]:
        """The spans of requests, in order."""
        return [span for span in self.spans if span.kind == 2]  # server


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    collector = Collector(status)
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()


@contextmanager
def traced(serve: Serve, share: float = 1.0, ending: str = "") -> Iterator[tuple[httpx.Client, Collector]]:
    """A service and its collector, which has all spans once the block has ended."""
    with collecting() as collector:
        with serve(otel_endpoint=collector.url + ending, otel_sample_rate=share) as http:
            yield http, collector


def attributes(holder: Any) -> dict[str, Any]:
    """Attributes of a span or resource, each in the type that it was sent in."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes}


@pytest.mark.parametrize("ending", ["", "/v1/traces"])
def test_a_request_is_a_span_with_a_child_for_each_stage_and_tells_nothing_of_the_query(
    serve: Serve, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with traced(serve, ending=ending) as (http, collector):
        found = http.post(f"/search?q={PRIVATE}", json={"query": PRIVATE}).json()
        http.post("/search", json={"query": 7})
        for path in ("/healthz", "/metrics", "/info", f"/?q={PRIVATE}", "/openapi.json"):
            http.get(path)
        monkeypatch.setattr("glow_service.telemetry.metrics.Metrics.stages", lambda *_: 1 / 0)
        assert_problem(http.post("/search", json={"query": "bees"}), 500, "internal")
    assert collector.paths == {"/v1/traces"}
    named = {each["service.name"] + each["service.version"] for each in collector.resources}
    assert named == {f"glow{__version__}"}
    search, refused, failed = collector.requests()
    assert search.name == refused.name == "POST /search" and search.parent_span_id == b""
    known = attributes(search)
    wanted = {
        "http.request.method": "POST",
        "http.route": "/search",
        "http.response.status_code": 200,
        "glow.request_id": found["request_id"],
        "glow.index_version": found["index"]["version"],
    }
    assert known.items() >= wanted.items()
    assert attributes(refused)["error.type"] == "invalid_request" and refused.status.code != 2
    assert attributes(failed)["error.type"] == "internal" and failed.status.code == 2
    assert PRIVATE not in str(collector.spans) and known["client.address"] == ""
    stages = [span for span in collector.spans if span.parent_span_id == search.span_id]
    assert {"preprocess", "encode", "search"} <= {span.name for span in stages}
    for span in stages:
        assert span.trace_id == search.trace_id
        assert search.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= search.end_time_unix_nano


@pytest.mark.parametrize(("share", "goes_on"), [(0.0, [True]), (1.0, [True, False, False])])
def test_the_trace_of_the_caller_goes_on_as_it_says(serve: Serve, share: float, goes_on: list[bool]) -> None:
    ends = (f"{TRACE}-{PARENT}-01", f"{TRACE}-{PARENT}-00", "junk", f"{TRACE.upper()}-{PARENT}-01")
    with traced(serve, share) as (http, collector):
        for end in ends:
            http.post("/search", json={"query": "bees"}, headers={"traceparent": f"00-{end}"})
    spans = collector.requests()
    assert [span.trace_id.hex() == TRACE for span in spans] == goes_on
    assert spans[0].parent_span_id.hex() == PARENT


def test_a_collector_that_does_not_answer_slows_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow_service.telemetry.tracing.CLOSE_WITHIN_S", 0.1)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with serve(otel_endpoint=endpoint, otel_sample_rate=1.0) as http:
            took = []
            for _ in range(100):  # 400 spans: more than may wait
                started = time.perf_counter()
                assert http.post("/search", json={"query": "bees"}).status_code == 200
                took.append(time.perf_counter() - started)
    assert sorted(took)[-10] < 0.1  # a queue that is full would stop most of them; a busy machine, one


def test_spans_that_a_collector_refuses_are_counted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with collecting(status=400) as collector:
        with serve(otel_endpoint=collector.url, otel_sample_rate=1.0) as http:
            http.post("/search", json={"query": 7})
            until(lambda: samples(http)["glow_spans_lost_total"] == 1)


def test_without_an_endpoint_no_sdk_is_imported_and_with_one_a_missing_package_names_the_extra() -> None:
    script = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.instrumentation")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
import glow_service.app
from glow.errors import DependencyError
from glow_service.telemetry.tracing import Tracer
Tracer("", 1.0, print).note({}, {})
try:
    Tracer("http://127.0.0.1:4318", 1.0, print)
except DependencyError as error:
    print(error)
"""
    said = python("-c", script).stdout
    assert "opentelemetry." in said and "pip install 'glow-retrieval[otel]'" in said
