"""Traces, as a collector receives them: a real OTLP/HTTP server that decodes what comes."""

import gzip
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from glow import __version__
from glow.errors import ConfigError
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.tracing import FinishedRequest, Tracer

ROOT = Path(__file__).parent.parent.parent
wire = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
    reason="traces were not tested: the extra `otel` is not installed",
)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FINISHED = FinishedRequest(
    method="POST",
    route="/search",
    status=200,
    request_id="r1",
    took_ms=10.0,
    timings_ms={"preprocess": 1.0, "encode": 4.0, "search": 2.0},
    index_version="v1",
)


class Collector:
    """Receives spans over HTTP and keeps them."""

    def __init__(self, status: int = 200) -> None:
        self.paths: list[str] = []
        self.resources: list[dict[str, str]] = []
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if status == 200:
                    collector.take(self.path, body)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path: str, body: bytes) -> None:
        """Decodes one export."""
        self.paths.append(path)
        for group in wire.ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes(group.resource))
            self.spans += [span for scope in group.scope_spans for span in scope.spans]


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


def attributes(holder: Any) -> dict[str, Any]:
    """Attributes of a span or resource, each in the type that it was sent in."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes}


def send(*requests: FinishedRequest) -> Collector:
    """What a collector gets of these requests."""
    with collecting() as collector:
        tracer = Tracer(collector.url, 1.0)
        for request in requests:
            tracer.record(request)
        tracer.close()
    return collector


def test_a_request_is_a_span_with_a_child_for_each_stage() -> None:
    before = time.time_ns()
    collector = send(FINISHED)
    assert collector.paths == ["/v1/traces"]
    spans = {span.name: span for span in collector.spans}
    assert [*spans] and spans.keys() == {"POST /search", "preprocess", "encode", "search"}
    request = spans.pop("POST /search")
    assert request.kind == 2  # server
    assert request.parent_span_id == b""
    assert request.end_time_unix_nano - request.start_time_unix_nano == 10_000_000
    assert before <= request.end_time_unix_nano <= time.time_ns()
    above = {(span.trace_id, span.parent_span_id) for span in spans.values()}
    assert above == {(request.trace_id, request.span_id)}
    at = request.end_time_unix_nano - 7_000_000
    for name, milliseconds in FINISHED.timings_ms.items():
        begin, at = at, at + round(milliseconds * 1e6)
        assert (spans[name].start_time_unix_nano, spans[name].end_time_unix_nano) == (begin, at)
    assert at == request.end_time_unix_nano


def test_a_span_says_what_the_log_says_and_who_made_it() -> None:
    collector = send(FINISHED)
    request = next(span for span in collector.spans if span.name == "POST /search")
    assert attributes(request) == {
        "http.request.method": "POST",
        "http.route": "/search",
        "http.response.status_code": 200,
        "glow.request_id": "r1",
        "glow.index_version": "v1",
    }
    (resource,) = collector.resources
    assert (resource["service.name"], resource["service.version"]) == ("glow", __version__)


@pytest.mark.parametrize(
    ("status", "code", "is_error"), [(422, "invalid_query", False), (504, "deadline", True)]
)
def test_a_fault_of_ours_is_an_error_and_one_of_the_client_is_not(
    status: int, code: str, is_error: bool
) -> None:
    (span,) = send(replace(FINISHED, status=status, code=code, timings_ms={})).spans
    assert (span.status.code == 2) == is_error and attributes(span)["error.type"] == code


def test_stages_that_sum_to_more_than_the_request_stay_inside_it() -> None:
    spans = send(replace(FINISHED, took_ms=3.0)).spans
    request = next(span for span in spans if span.name == "POST /search")
    for span in spans:
        assert request.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= request.end_time_unix_nano


@pytest.mark.parametrize("more", ["", "-what-a-later-version-adds"])
def test_the_trace_of_the_caller_goes_on(more: str) -> None:
    version = "01" if more else "00"
    (span,) = send(replace(FINISHED, timings_ms={}, traceparent=f"{version}-{TRACE}-{PARENT}-01{more}")).spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)


WRONG = [
    "",
    "junk",
    f"00-{TRACE}-{PARENT}",
    f"00-{TRACE}-{PARENT}-01-more",
    f"ff-{TRACE}-{PARENT}-01",
    f"00-{'0' * 32}-{PARENT}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE.upper()}-{PARENT}-01",
]


@pytest.mark.parametrize("header", WRONG)
def test_a_header_that_is_none_begins_a_new_trace(header: str) -> None:
    (span,) = send(replace(FINISHED, timings_ms={}, traceparent=header)).spans
    assert span.trace_id.hex() != TRACE and span.parent_span_id == b""


def test_the_caller_decides_whether_a_trace_that_it_began_is_kept() -> None:
    for share in (0.0, 1.0):
        tracer = Tracer("http://127.0.0.1:9", share)
        assert tracer.wants(f"00-{TRACE}-{PARENT}-01")
        assert not tracer.wants(f"00-{TRACE}-{PARENT}-00")
        assert [tracer.wants(header) for header in WRONG] == [share == 1.0] * len(WRONG)
        tracer.close()


def test_of_requests_without_a_trace_a_share_is_taken() -> None:
    tracer = Tracer("http://127.0.0.1:9", 0.2, seed=7)
    assert sum(tracer.wants("") for _ in range(10_000)) == pytest.approx(2_000, abs=160)
    tracer.close()


def silent_port() -> socket.socket:
    """A server that takes connections and never says a word."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(50)
    return listener


def dead_port() -> socket.socket:
    """An address where nobody listens."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    return taken


@pytest.mark.parametrize("make", [silent_port, dead_port])
def test_a_collector_that_does_not_answer_slows_nothing(make: Callable[[], socket.socket]) -> None:
    with make() as port:
        tracer = Tracer(f"http://127.0.0.1:{port.getsockname()[1]}", 1.0)
        took = []
        for _ in range(2_000):  # 8,000 spans: more than may wait
            started = time.perf_counter()
            tracer.record(FINISHED)
            took.append(time.perf_counter() - started)
        assert sorted(took)[-20] < 0.1  # a queue that is full would stop most of them; a busy machine, one
        started = time.perf_counter()
        tracer.close()
        assert time.perf_counter() - started < 4.0


def test_spans_that_a_collector_refuses_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for thread in threading.enumerate():
        # Those of another test's collector, which may yet say that it does not answer.
        if thread.name == "close-traces":
            thread.join()
    caplog.clear()
    metrics = Metrics()
    with collecting(status=400) as collector:
        tracer = Tracer(collector.url, 1.0, count_lost=metrics.spans_lost.inc)
        for _ in range(300):  # more than one export
            tracer.record(FINISHED)
        tracer.close()
    assert metrics.registry.get_sample_value("glow_spans_lost_total") == 1_200
    assert [record.name for record in caplog.records] == ["glow_service.telemetry.tracing"]


def test_a_request_that_makes_no_span_costs_a_log_line_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    collector = send(replace(FINISHED, took_ms=float("nan")), FINISHED)
    assert "a trace could not be made" in caplog.text
    assert len(collector.spans) == 4


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "ftp://collector", "http://", "grpc://collector:4317"]
)
def test_an_endpoint_that_is_no_http_address_is_an_error(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"--otel-endpoint .*expected an address such as http://"):
        Tracer(endpoint, 1.0)


@pytest.mark.parametrize("ending", ["/", "/v1/traces"])
def test_the_path_of_traces_is_added_where_it_is_not_there(ending: str) -> None:
    with collecting() as collector:
        tracer = Tracer(collector.url + ending, 1.0)
        tracer.record(FINISHED)
        tracer.close()
    assert collector.paths == ["/v1/traces"]


def run_apart(script: str) -> str:
    """What a fresh process prints."""
    head = "import sys\nfrom pathlib import Path\nfrom glow_service.settings import Settings\n"
    command = [sys.executable, "-c", head + script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("glow_service.telemetry.tracing", ("opentelemetry",)),
        # FastAPI and redis import other parts of their own accord.
        ("glow_service.app", ("opentelemetry.exporter",)),
    ],
)
def test_without_an_endpoint_opentelemetry_is_not_imported(module: str, unwanted: tuple[str, ...]) -> None:
    script = f"""
import {module}
from glow_service.telemetry.tracing import FinishedRequest, Tracer
tracer = Tracer("", 1.0)
tracer.record(FinishedRequest("GET", "/", 200, "r", 1.0, {{}}))
print(tracer.wants(""), [name for name in sys.modules if name.startswith({unwanted!r})])
tracer.close()
"""
    assert run_apart(script) == "False []\n"


def test_an_endpoint_without_the_package_names_the_extra() -> None:
    script = """
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.sdk"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
from glow.errors import DependencyError
from glow_service.telemetry.tracing import Tracer
try:
    Tracer("http://127.0.0.1:4318", 1.0)
except DependencyError as error:
    print(error)
"""
    said = run_apart(script)
    assert "opentelemetry.sdk" in said and "pip install 'glow-retrieval[otel]'" in said


def test_a_request_that_is_not_traced_costs_next_to_nothing() -> None:
    off = Tracer("", 1.0)
    on = Tracer("http://127.0.0.1:9", 0.0)
    for tracer, limit in ((off, 2e-6), (on, 10e-6)):
        costs = []
        for _ in range(20):
            started = time.perf_counter()
            for _ in range(200):
                tracer.wants("")
            costs.append((time.perf_counter() - started) / 200)
        assert min(costs) < limit
    on.close()
