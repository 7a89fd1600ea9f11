"""A service over an index root, asked everything over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from glow_service.app import create_app
from glow_service.settings import Settings
from tests.goldens.questions import DOCUMENTS, HOME, SEARCHES
from tests.ports import free_port
from tests.until import until

__all__ = ["answers", "serving"]


@contextmanager
def serving(index_root: Path) -> Iterator[httpx.Client]:
    """A client of a service in a thread of this process; it is ready when the block begins."""
    # What follows the machine's cores otherwise.
    settings = Settings(index_root=index_root, default_timeout_ms=30_000, search_threads=1, workers=1)
    app = create_app(settings, on_failure=lambda: None)
    config = uvicorn.Config(app, port=free_port(), log_config=None, lifespan="on", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{config.port}", timeout=60) as client:
            until(lambda: is_ready(client))
            yield client
    finally:
        server.should_exit = True
        thread.join()


def is_ready(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/readyz").status_code == 200
    return False


def answers(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Each question's answer, or its problem; each with its `status`."""
    asked = {name: client.post("/search", json=body) for name, body in SEARCHES.items()}
    asked |= {f"document {name}": client.get(f"/documents/{name}") for name in DOCUMENTS}
    for tower in ("query", "document"):
        body = {"input": [HOME, "tea"], "input_type": tower}
        asked[f"{tower} vectors"] = client.post("/v1/embeddings", json=body)
    return {name: {**answer.json(), "status": answer.status_code} for name, answer in asked.items()}
