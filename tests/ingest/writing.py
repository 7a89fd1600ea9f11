"""What tests that write over HTTP share: the key, a service in the test's process, and the size of the log."""

import hashlib
from contextlib import AbstractContextManager
from typing import Any

import httpx

from glow.artifact import IndexRoot
from glow.ingest import INGEST_FOLDER
from glow_service.app import create_app
from glow_service.settings import Settings
from tests.service.conftest import _serve_in_thread

KEY = "a-key-for-writing"
WRITE = {"X-API-Key": KEY}
KEY_HASH = hashlib.sha256(KEY.encode()).hexdigest()
KEY_FLAGS = ("--write-key", KEY_HASH)
"""Of a service that takes writes with it."""


def serving_writes(root: IndexRoot, **values: Any) -> AbstractContextManager[httpx.Client]:
    """Serves a root from a thread of the test's process, which takes writes unless told otherwise."""
    settings = {"default_timeout_ms": 30_000, "write_key": KEY_HASH, **values}
    return _serve_in_thread(create_app(Settings(index_root=root.path, **settings), on_failure=lambda: None))


def log_bytes(root: IndexRoot) -> int:
    return sum(path.stat().st_size for path in (root.path / INGEST_FOLDER / "log").glob("*.log"))
