"""Real servers for the service's tests: in a thread of the test's process, or as a process, as users start it."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from glow.index import Index
from glow_service.app import create_app
from glow_service.commands.serve import HTTP
from glow_service.settings import Settings
from glow_service.state import Service
from tests.made_index import made, write
from tests.ports import free_port
from tests.program import ROOT, glow
from tests.service.asking import BuildIndex, Serve, ServeOpen, live_index

START_TIMEOUT_S = 60.0
PATIENCE_MS = 30_000
"""Deadline of a request that names none: a busy machine is slow, and tests of deadlines set their own."""


@dataclass
class Server:
    """A running `glow serve`."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_TIMEOUT_S)

    def client(self, timeout: float = 30) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=timeout)

    def logged(self) -> str:
        """What it wrote to stderr so far."""
        return self.log.read_text(encoding="utf-8")


def _environment(**variables: str) -> dict[str, str]:
    """The environment with these variables and without settings that the person who runs the tests may have."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")} | variables


def _wait_until_ready(url: str, gave_up: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and not gave_up():
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("the service did not get ready")


@contextmanager
def _run_server(folder: Path, *flags: str, **variables: str) -> Iterator[Server]:
    port = free_port()
    given = ["--port", str(port), "--workers", "1", "--default-timeout-ms", str(PATIENCE_MS)]
    command = [sys.executable, "-m", "glow", "serve", *given, *flags]
    log = folder / f"service-{port}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file, env=_environment(**variables))
    server = Server(f"http://127.0.0.1:{port}", process, log)
    try:
        _wait_until_ready(server.url, gave_up=lambda: process.poll() is not None)
        yield server
    except AssertionError as error:
        raise AssertionError(f"{error}\n{server.logged()}") from error
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="session")
def start_server() -> Callable[..., AbstractContextManager[Server]]:
    """Starts a service as a process, ready when the block begins: `start_server(folder_of_its_log, *flags, **variables)`."""
    return _run_server


@pytest.fixture
def run_server(tmp_path: Path) -> Callable[..., AbstractContextManager[Server]]:
    """Starts a service of the test's own with these flags (and variables)."""
    return lambda *flags, **variables: _run_server(tmp_path, *map(str, flags), **variables)


@pytest.fixture
def run_to_exit() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs the service with these flags where it is expected to refuse to start."""
    options = {"env": _environment(), "timeout": START_TIMEOUT_S}
    return lambda *flags: glow("serve", "--port", free_port(), *flags, **options)


@pytest.fixture(scope="session")
def http(serve: Serve) -> Iterator[httpx.Client]:
    """A client of a service over the toy index that many tests ask; leave its state as it is."""
    with serve(workers=1) as client:
        yield client


@pytest.fixture(scope="session")
def index(toy_index: Path) -> Index:
    """The toy index, opened beside the service: what its answers are compared with."""
    return live_index(toy_index)


@contextmanager
def _serve_in_thread(app: FastAPI, *, wait: bool = True) -> Iterator[httpx.Client]:
    config = uvicorn.Config(app, port=free_port(), **HTTP)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        url = f"http://127.0.0.1:{config.port}"
        if wait:
            _wait_until_ready(url, gave_up=lambda: not thread.is_alive())
        with httpx.Client(base_url=url, timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def serve_app() -> Callable[..., AbstractContextManager[httpx.Client]]:
    """Serves an app from a thread of this process, ready when the block begins unless it is given `wait=False`."""
    return _serve_in_thread


def _app(index_root: Path, **values: Any) -> FastAPI:
    settings = Settings(index_root=index_root, **{"default_timeout_ms": PATIENCE_MS, **values})
    return create_app(settings, on_failure=lambda: None)


@pytest.fixture(scope="session")
def serve(toy_index: Path) -> Serve:
    """Serves an index, by default the toy index, over real HTTP from a thread of this process."""
    return lambda root=toy_index, wait=True, **values: _serve_in_thread(_app(root, **values), wait=wait)


@pytest.fixture(scope="session")
def serve_open(toy_index: Path) -> ServeOpen:
    """As `serve`, to reach into the service behind the client."""

    @contextmanager
    def start(root: Path = toy_index, **values: Any) -> Iterator[tuple[httpx.Client, Service]]:
        app = _app(root, **values)
        with _serve_in_thread(app) as client:
            yield client, app.state.service

    return start


@pytest.fixture(scope="session")
def make_app() -> Callable[..., FastAPI]:
    """Makes an app over an index root whose start does not end the process when it fails."""
    return _app


@pytest.fixture
def index_copy(toy_index: Path, tmp_path: Path) -> Path:
    """A copy of the toy index root, to damage."""
    return Path(shutil.copytree(toy_index, tmp_path / "copy"))


@pytest.fixture(scope="session")
def build_index(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> BuildIndex:
    """Builds and publishes an index of these documents, with options of a build; returns its root."""

    def build(records: list[dict[str, Any]], model: Path = toy_model, **options: Any) -> Path:
        folder = tmp_path_factory.mktemp("built")
        return made(model, write(folder / "corpus.jsonl", records), folder / "index", **options).path

    return build


@pytest.fixture
def loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)
