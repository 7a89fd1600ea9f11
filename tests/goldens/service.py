"""A service over an index root, asked everything over HTTP."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from glow_service.app import create_app
from glow_service.settings import Settings
from tests.goldens.questions import DOCUMENTS, HOME, SEARCHES
from tests.ports import free_port

__all__ = ["answers", "serving"]

START_S = 60.0


@contextmanager
def serving(index_root: Path) -> Iterator[httpx.Client]:
    """A client of a service in a thread of this process; it is ready when the block begins."""
    # What follows the machine's cores otherwise.
    settings = Settings(index_root=index_root, default_timeout_ms=30_000, search_threads=1, workers=1)
    config = uvicorn.Config(
        create_app(settings, on_failure=lambda: None),
        port=free_port(),
        log_config=None,
        lifespan="on",
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{config.port}", timeout=60) as client:
            _wait(client)
            yield client
    finally:
        server.should_exit = True
        thread.join()


def _wait(client: httpx.Client) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.01)
    raise AssertionError("the service did not get ready")


def answers(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Each question's answer, or its problem; each with its `status`."""
    asked = {name: client.post("/search", json=body) for name, body in SEARCHES.items()}
    asked |= {f"document {name}": client.get(f"/documents/{name}") for name in DOCUMENTS}
    for tower in ("query", "document"):
        body = {"input": [HOME, "tea"], "input_type": tower}
        asked[f"{tower} vectors"] = client.post("/v1/embeddings", json=body)
    return {name: {**answer.json(), "status": answer.status_code} for name, answer in asked.items()}
