"""Starting, refusing to start, getting ready, draining and stopping: real processes, real files."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import onnxruntime
import pytest
import uvicorn
from fastapi import FastAPI

from glow.artifact import IndexRoot
from glow.artifact.model import QUERY_TOWER
from glow.index.stored_fields import STORED_FIELDS
from glow_service.app import create_app
from glow_service.commands.serve import serve_command
from glow_service.settings import Settings
from tests.service.asking import REST, Serve, half_search, invoke, is_answered
from tests.until import until

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def reason(stderr: str) -> dict[str, Any]:
    """The line that says why the service did not start."""
    lines = [json.loads(line) for line in stderr.splitlines()]
    return next(line for line in lines if line["level"] == "critical")


def test_workers_do_not_start_on_a_damaged_index_and_it_is_said_once(
    index_copy: Path, run_to_exit: Callable[..., Any]
) -> None:
    path = IndexRoot(index_copy).folder(IndexRoot(index_copy).current()) / "model" / QUERY_TOWER
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    done = run_to_exit("--index-root", index_copy, "--workers", 2)
    assert done.returncode == 3, done.stderr
    line = reason(done.stderr)
    assert line["code"] == "artifact_damaged" and f"model/{QUERY_TOWER}" in line["message"]
    # Uvicorn adds nothing.
    assert done.stderr.count("artifact_damaged") == 1
    assert '"error"' not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.usefixtures("loggers_as_before")
def test_what_is_not_there_or_taken_is_named_by_one_line(
    toy_index: Path, tmp_path: Path, run_to_exit: Callable[..., Any]
) -> None:
    done = invoke(serve_command, "--index-root", tmp_path, "--workers", 2)
    assert done.exit_code == 3 and len(done.stderr.splitlines()) == 1
    assert reason(done.stderr)["code"] == "artifact_not_found"
    assert "glow build" in reason(done.stderr)["message"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run_to_exit("--index-root", toy_index, "--port", port)
    assert refused.returncode == 3 and str(port) in refused.stderr and "in use" in refused.stderr


# A GPU that is not there is refused, and one that is answers as the CPU does.


@pytest.mark.skipif(
    HAS_CUDA, reason="this onnxruntime has the CUDA provider, which the test needs to be absent"
)
def test_a_gpu_that_is_not_there_is_refused_and_never_replaced_by_the_cpu(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(device="cuda", wait=False) as client:
        until(lambda: "--device cpu" in caplog.text)
        assert client.get("/readyz").status_code == 503


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="this onnxruntime has no CUDA provider")
@pytest.mark.parametrize("retriever", ["dense", "hybrid"])
def test_a_service_on_cuda_finds_what_one_on_the_cpu_finds(
    retriever: str, toy_index: Path, http: httpx.Client, run_server: Callable[..., Any]
) -> None:
    body = {"query": "how do bees find the way home", "retriever": retriever, "timeout_ms": 10_000}
    expected = http.post("/search", json=body).json()["hits"]
    with run_server("--index-root", toy_index, "--device", "cuda") as server, server.client(60) as client:
        found = client.post("/search", json=body).json()["hits"]
    assert [hit["id"] for hit in found] == [hit["id"] for hit in expected]
    assert [hit["score"] for hit in found] == pytest.approx([hit["score"] for hit in expected], abs=1e-3)


def test_two_workers_serve_start_again_and_stop_together(index_copy: Path, run_server: Any) -> None:
    with run_server("--index-root", index_copy, "--workers", 2, "--max-top-k", 7) as server:
        assert server.logged().count('"message":"ready"') == 2  # whoever says so first speaks for both
        for _ in range(20):  # a new connection each time, so that both are met
            assert httpx.post(f"{server.url}/search", json={"query": "bees", "top_k": 8}).status_code == 422
        # A worker that cannot start again does not end the other; more are started in its place, and end.
        (index_copy / "CURRENT").rename(index_copy / "elsewhere")
        path = f"/proc/{server.process.pid}/task/{server.process.pid}/children"
        os.kill(int(Path(path).read_text().split()[0]), signal.SIGKILL)
        until(lambda: server.logged().count("cannot start") >= 2)
        assert server.process.poll() is None and is_answered(server.url)
        (index_copy / "elsewhere").rename(index_copy / "CURRENT")
        until(lambda: server.logged().count('"message":"ready"') == 3)
        assert server.stop() == 0
        assert is_closed(server.url)


def test_while_draining_it_answers_and_is_not_ready_and_ends_after_its_last_request(
    toy_index: Path, run_server: Callable[..., Any]
) -> None:
    with run_server("--index-root", toy_index, "--drain-s", "2") as server:
        with httpx.Client(base_url=server.url) as client, half_search(client) as slow:
            assert "connection" not in client.get("/healthz").headers
            until(lambda: "glow_requests_in_flight 2.0" in client.get("/metrics").text)
            os.kill(server.process.pid, signal.SIGTERM)
            until(lambda: client.get("/readyz").status_code != 200, within_s=1.0)
            refused = client.get("/readyz")
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert refused.headers["connection"] == "close"
            assert client.get("/healthz").status_code == 200
            assert client.post("/search", json={"query": "honey bees"}).json()["hits"]
            assert "glow_ready 0.0" in client.get("/metrics").text
            until(lambda: is_closed(server.url))
            slow.sendall(REST)
            assert b"HTTP/1.1 200" in slow.recv(65_536)
        assert server.process.wait(30) == 0
        lines = [json.loads(line) for line in server.logged().splitlines()]
        assert [line["url"] for line in lines if line["message"] == "listening"] == [server.url]


def test_a_connection_that_was_accepted_before_the_stop_is_answered(toy_index: Path, run_server: Any) -> None:
    with run_server("--index-root", toy_index) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
            os.kill(server.process.pid, signal.SIGTERM)
            until(lambda: is_closed(server.url))
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" in connection.recv(65_536)


def test_a_resource_that_stops_answering_is_named_by_readyz(
    index_copy: Path,
    make_app: Callable[[Path], FastAPI],
    serve_app: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("glow_service.live.workers.FRESH_S", 60.0)
    app = make_app(index_copy)
    with serve_app(app) as client:
        documents = app.state.service.resources.live()[STORED_FIELDS]
        # As if its disk were gone: the file cannot be opened, and open connections to it are lost.
        documents._uri = documents._uri.replace("documents.sqlite", "gone.sqlite")
        documents._local, documents._spare = type(documents._local)(), None
        assert client.get("/readyz").status_code == 200  # an answer counts for a moment
        monkeypatch.setattr("glow_service.live.workers.FRESH_S", 0.0)
        refused = client.get("/readyz")
        assert (refused.status_code, refused.json()["code"]) == (503, "not_ready")
        assert "documents" in refused.json()["detail"] and "gone" not in refused.text
        failed = client.post("/search", json={"query": "bees"})
        assert (failed.status_code, failed.json()["code"]) == (503, "artifact_format")
        assert "sqlite" not in failed.text
        assert client.get("/healthz").status_code == 200


def test_a_stop_does_not_wait_for_a_load(toy_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr("glow_service.live.resources.Index.open", lambda *_: gate.wait(60))
    config = uvicorn.Config(create_app(Settings(index_root=toy_index), lambda: None), port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    started = time.monotonic()
    server.should_exit = True
    thread.join()
    gate.set()
    assert time.monotonic() - started < 10


def is_closed(url: str) -> bool:
    place = urlsplit(url)
    with socket.socket() as connection:
        return connection.connect_ex((place.hostname, place.port)) != 0
