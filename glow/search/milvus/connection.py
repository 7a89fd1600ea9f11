"""The connection to a Milvus server: where it is, what failed in our words, and a pause after what failed.

An address is `milvus://HOST:PORT[/DATABASE]`, `milvus+tls://…`, or `milvus:///PATH.db` for Milvus Lite, which needs no server.
"""

import importlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from glow.errors import ConfigError, DependencyError, GlowError, StoreError

__all__ = ["Connection", "StoreAccess", "connect", "require_pymilvus"]

T = TypeVar("T")
_ADDRESS = re.compile(r"milvus(\+tls)?://([^/@\s]*)(/[^\s]*)?")
TOKEN_VARIABLE, TIMEOUT_VARIABLE = "GLOW_STORE_TOKEN", "GLOW_STORE_TIMEOUT_MS"
DEFAULT_TIMEOUT_S = 2.0
PAUSE_S = 1.0
"""After a failed call, for so long nobody waits for the server: requests fail at once."""
REFUSED = ("auth check", "unauthenticated", "permissiondenied", "permission deny")
GONE = ("can't find collection", "collection not found", "not exist")
"""What servers of several versions say; their numbers differ more than their words."""


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How to reach a server, which no artifact says.

    Attributes:
        token: `USER:PASSWORD` or a token; empty for none.
        timeout_s: of a search.
    """

    token: str = field(default="", repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S

    @classmethod
    def of_environment(cls) -> "StoreAccess":
        """From `GLOW_STORE_TOKEN` and `GLOW_STORE_TIMEOUT_MS`.

        Raises:
            ConfigError: if the time is no number above 0.
        """
        text = os.environ.get(TIMEOUT_VARIABLE, "")
        try:
            timeout_s = float(text) / 1_000 if text else DEFAULT_TIMEOUT_S
        except ValueError:
            timeout_s = 0.0
        if not timeout_s > 0:
            raise ConfigError(f"{TIMEOUT_VARIABLE} is {text!r}, expected milliseconds above 0")
        return cls(os.environ.get(TOKEN_VARIABLE, ""), timeout_s)


def require_pymilvus() -> Any:
    """The package.

    Raises:
        DependencyError: if it is not installed.
    """
    try:
        return importlib.import_module("pymilvus")
    except ImportError as error:
        raise DependencyError(
            "vectors in Milvus need the package pymilvus: install the extra `milvus` (pip install 'glow-retrieval[milvus]')"
        ) from error


class Connection:
    """A client of one server; safe to use from many threads.

    Args:
        address: as the module says.
        access: credentials and time.

    Raises:
        ConfigError: if the address is none, or the server refuses the credentials.
        StoreError: if there is no server.
        DependencyError: if pymilvus is not installed.
    """

    def __init__(self, address: str, access: StoreAccess) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise ConfigError(
                f"--store {address!r} is no address: expected milvus://HOST:PORT[/DATABASE], or milvus:///PATH.db for a file"
            )
        tls, host, path = found[1], found[2], found[3] or ""
        if not host and not path.endswith(".db"):
            raise ConfigError(f"--store {address!r} names no host, nor a file that ends in .db")
        self.address, self.access = address, access
        self._uri = f"http{'s' if tls else ''}://{host}" if host else path
        self._database = path.strip("/") if host else ""
        self._pause_until = 0.0
        self._lock = threading.Lock()
        self._client = self._call(self._open, is_search=False)

    def _open(self) -> Any:
        options = {"token": self.access.token} if self.access.token else {}
        if self._database:
            options["db_name"] = self._database
        return require_pymilvus().MilvusClient(
            uri=self._uri, timeout=max(self.access.timeout_s, 5.0), **options
        )

    def run(self, call: Callable[[Any], T]) -> T:
        """Calls the client; what fails is told in our errors.

        Raises:
            StoreError: if the server is gone, slow or refuses, failed a moment ago, or has not the collection.
            ConfigError: if it refuses the credentials, or has no such database.
        """
        if time.monotonic() < self._pause_until:
            raise StoreError(
                f"{self.address} failed a moment ago; it is asked again in at most {PAUSE_S:.0f} s"
            )
        return self._call(lambda: call(self._client), is_search=True)

    def _call(self, call: Callable[[], T], *, is_search: bool) -> T:
        pymilvus, grpc = require_pymilvus(), importlib.import_module("grpc")
        try:
            return call()
        except (pymilvus.MilvusException, grpc.RpcError, OSError) as error:
            if is_search:
                with self._lock:
                    self._pause_until = time.monotonic() + PAUSE_S
            raise self._told(error, is_open=is_search) from error

    def _told(self, error: Any, *, is_open: bool) -> GlowError:
        """What the client says, in our words."""
        text = " ".join(str(getattr(error, "message", None) or error).split())[:300]
        lower = text.lower()
        # What an old server says of wrong credentials is lost on the way: then the port tells who is there. Once
        # credentials were good, it is a server that listens and does not answer yet.
        is_there = "illegal connection params" in lower and not is_open and self._listens()
        if is_there or any(word in lower for word in REFUSED):
            return ConfigError(
                f"{self.address} refuses the credentials: {text}; set {TOKEN_VARIABLE} to USER:PASSWORD"
            )
        if "database" in lower and "not found" in lower:
            return ConfigError(f"{self.address} has no such database: {text}")
        if any(word in lower for word in GONE):
            self._pause_until = 0.0  # the server answers
            return StoreError(
                f"{self.address}: the collection is not there: {text}; where Milvus does not just start, publish another "
                "version, or build again",
                is_gone=True,
            )
        return StoreError(f"{self.address} does not answer: {text}; see that Milvus runs and can be reached")

    def _listens(self) -> bool:
        parts = urlsplit(self._uri)
        try:
            socket.create_connection((parts.hostname or "", parts.port or 19530), timeout=1.0).close()
        except OSError:
            return False
        return True


def connect(address: str, access: StoreAccess | None = None) -> Connection:
    """A connection; arguments and errors as for `Connection`, access from the environment unless given."""
    return Connection(address, access or StoreAccess.of_environment())
