"""What tests that write over HTTP share: the key, and the size of the log."""

import hashlib

from glow.artifact import IndexRoot
from glow.ingest import INGEST_FOLDER

KEY = "a-key-for-writing"
WRITE = {"X-API-Key": KEY}
KEY_FLAGS = ("--write-key", hashlib.sha256(KEY.encode()).hexdigest())
"""Of a service that takes writes with it."""


def log_bytes(root: IndexRoot) -> int:
    return sum(path.stat().st_size for path in (root.path / INGEST_FOLDER / "log").glob("*.log"))
