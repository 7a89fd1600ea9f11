"""The connection to a Milvus server: its address, GLOW's errors for its failures, and reconnection.

An address is `milvus://HOST:PORT[/DATABASE]`, `milvus+tls://…`, or `milvus:///PATH.db` for Milvus Lite, which needs no server.
"""

import hashlib
import importlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.errors import ConfigError, DependencyError, GlowError, StoreError
from glow.index.ranking import IndexKind, time_left_s
from glow.options import StrictModel
from glow.storage import read_header

STORE_FILE = "vectors.json"
STORED_FOLDER, STORED_HEADER, BY_ID_FILE = "store", "store.json", "by-id.npy"
"""Directory of a version whose other components are in collections: their names, and the rows in the order of ids, uint32 [n]."""
ROW_FIELD, VECTOR_FIELD = "row", "vector"
RowUnit = Literal["document", "vector"]
SAMPLED = 100


class CollectionHeader(StrictModel):
    """A collection, and what ties it to its version."""

    # Its name, whose end is that of `bound_to`: Lite stores no description, but every server a name
    collection: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,254}$")]
    # number of its entities, whose primary keys are 0 to rows - 1
    rows: Annotated[int, Field(ge=1, lt=2**32)]
    sample: str = ""  # SHA-256 of the values of `sampled_rows`
    # Names of the columns that it can filter, in the order of its fields `f0`, `f1`, …
    filters: tuple[str, ...] = ()

    def bound_to(self, hashes: Mapping[str, str]) -> str:
        """End of the collection's name for a version with these hashes."""
        said = f"{hashes.get('model', '')} {hashes.get('terms', '')} {self.sample} {self.rows}"
        return hashlib.sha256(said.encode()).hexdigest()[:24]


class StoredRows(CollectionHeader):
    """A collection with rows of components."""

    per: RowUnit  # unit of its rows
    components: tuple[str, ...]  # that are in it
    text_bytes: Annotated[int, Field(ge=0)]  # size of the largest stored document


class StoredHeader(StrictModel):
    """`store/store.json`: components whose rows are in collections."""

    format: Literal[1] = 1  # format version
    address: str  # of the server, without credentials
    collections: tuple[StoredRows, ...]  # one for each unit of rows


class StoreHeader(CollectionHeader):
    """`vectors.json`."""

    format: Literal[1] = 1  # format version
    address: str  # of the server, without credentials
    index: IndexKind  # kind of dense index
    dimensions: Annotated[int, Field(ge=1, le=32_768)]


def read_store_header(folder: Path) -> StoreHeader:
    """Reads it from a version's directory."""
    return read_header(folder / STORE_FILE, StoreHeader)


def sampled_rows(rows: int) -> NDArray[np.int64]:
    """The rows to compare bit for bit when a collection is opened, int64, ascending."""
    return np.unique(np.linspace(0, rows - 1, min(SAMPLED, rows)).astype(np.int64))


def collections_of(folder: Path) -> dict[str, str]:
    """The collections of a version: name -> address; empty if all its rows are in files."""
    collections: dict[str, str] = {}
    if (folder / STORE_FILE).is_file():
        vectors = read_store_header(folder)
        collections[vectors.collection] = vectors.address
    if (folder / STORED_FOLDER / STORED_HEADER).is_file():
        stored = read_header(folder / STORED_FOLDER / STORED_HEADER, StoredHeader)
        collections |= {each.collection: stored.address for each in stored.collections}
    return collections


T = TypeVar("T")
_ADDRESS = re.compile(r"milvus(\+tls)?://([^/@\s]*)(/[^\s]*)?")
TOKEN_VARIABLE, TIMEOUT_VARIABLE = "GLOW_STORE_TOKEN", "GLOW_STORE_TIMEOUT_MS"
DEFAULT_TIMEOUT_S = 2.0
SEARCH_SHARE = 0.8
"""Fraction of a search's remaining time that one call may take: without vectors, words can still answer in time."""
BUILD_S = 600.0
"""Limit of one call that no search waits for."""
LEAST_VERSION = (2, 4)
"""The first with sparse vectors."""
LOAD_S, INDEX_S = 3_600.0, 86_400.0
"""Limits of loading and of indexing a collection of any size."""
GRPC_OPTIONS = {
    "grpc.max_receive_message_length": 64 << 20,
    # A new channel would reuse the previous connection, which may be the slow one.
    "grpc.use_local_subchannel_pool": 1,
}
REFUSED = ("auth check", "unauthenticated", "permissiondenied", "permission deny")
GONE = ("can't find collection", "collection not found", "not exist")
"""Messages of several server versions; their error numbers differ more than their texts."""


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """Credentials and time limit of a server; no artifact contains them."""

    token: str = field(default="", repr=False)  # `USER:PASSWORD` or a token; empty if there is none
    timeout_s: float = DEFAULT_TIMEOUT_S  # of a search

    @classmethod
    def of_environment(cls) -> "StoreAccess":
        """From `GLOW_STORE_TOKEN` and `GLOW_STORE_TIMEOUT_MS`."""
        text = os.environ.get(TIMEOUT_VARIABLE, "")
        try:
            timeout_s = float(text) / 1_000 if text else DEFAULT_TIMEOUT_S
        except ValueError:
            timeout_s = 0.0
        if not timeout_s > 0:
            raise ConfigError(f"{TIMEOUT_VARIABLE} is {text!r}, expected milliseconds above 0")
        return cls(os.environ.get(TOKEN_VARIABLE, ""), timeout_s)


def require_pymilvus() -> Any:
    """Imports the package."""
    try:
        return importlib.import_module("pymilvus")
    except ImportError as error:
        raise DependencyError(
            "an index in Milvus needs the package pymilvus: install the extra `milvus` (pip install 'glow-retrieval[milvus]')"
        ) from error


class Connection:
    """A client of one server; safe to use from many threads."""

    def __init__(self, address: str, access: StoreAccess) -> None:
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise ConfigError(
                f"the store {address!r} is not an address: expected milvus://HOST:PORT[/DATABASE], or milvus:///PATH.db for a file"
            )
        tls, host, path = match[1], match[2], match[3] or ""
        if not host and not path.endswith(".db"):
            raise ConfigError(f"the store {address!r} names neither a host nor a file that ends in .db")
        self.address, self.access = address, access
        self._uri = f"http{'s' if tls else ''}://{host}" if host else path
        self._database = path.strip("/") if host else ""
        self._has_failed = False
        self._is_probed = False
        self._lock = threading.Lock()
        self._client: Any = None
        self._client = self._call(self._open)

    def _open(self) -> Any:
        options = {"token": self.access.token} if self.access.token else {}
        if self._database:
            options["db_name"] = self._database
        return require_pymilvus().MilvusClient(
            uri=self._uri, timeout=max(self.access.timeout_s, 5.0), grpc_options=GRPC_OPTIONS, **options
        )

    def run(
        self,
        call: Callable[[Any, float], T],  # function of the client and its time limit in seconds
        # That limit; None: the limit of a search, and not longer than the current search may take
        within_s: float | None = None,
    ) -> T:
        """Calls the client; failures become GLOW's errors.

        After a failure, one call at a time checks whether the server responds again; other calls fail at once.
        """
        limit_s = within_s or min(self.access.timeout_s, SEARCH_SHARE * time_left_s())
        until, is_probe = time.monotonic() + limit_s, self._begin()

        def attempt() -> T:
            # A file has no connection. On another one, late bytes may precede every response: it is replaced.
            if is_probe and self._uri.startswith("http"):
                handler = getattr(self._client, "_handler", None)
                getattr(handler, "reconnect", lambda timeout: None)(timeout=limit_s)
            return call(self._client, max(until - time.monotonic(), 0.001))

        try:
            answer = self._call(attempt)
        except StoreError as error:
            # A search with hardly any time left must not affect the others.
            if not error.is_gone and limit_s >= self.access.timeout_s / 2:
                self._has_failed = True
            raise
        finally:
            if is_probe:
                self._is_probed = False
        self._has_failed = False
        return answer

    def call(self, method: str, *arguments: Any, within_s: float | None = None, **options: Any) -> Any:
        """As `run`, for one method of the client."""
        return self.run(
            lambda client, left_s: getattr(client, method)(*arguments, timeout=left_s, **options), within_s
        )

    def _begin(self) -> bool:
        """Whether this call is to check if the server responds again."""
        with self._lock:
            if not self._has_failed:
                return False
            if self._is_probed:
                raise StoreError(
                    f"{self.address} failed a moment ago; another search checks whether it responds again"
                )
            self._is_probed = True
            return True

    def _call(self, call: Callable[[], T]) -> T:
        pymilvus, grpc = require_pymilvus(), importlib.import_module("grpc")
        try:
            return call()
        except (pymilvus.MilvusException, grpc.RpcError, OSError) as error:
            raise self._to_error(error) from error

    def _to_error(self, error: Any) -> GlowError:
        """GLOW's error for a failure of the client."""
        text = " ".join(str(getattr(error, "message", None) or error).split())[:300]
        lower = text.lower()
        # The client loses an old server's message about wrong credentials: then the port tells whether a server is there. If
        # credentials were accepted before, it is a server that listens and does not respond yet.
        is_there = "illegal connection params" in lower and self._client is None and self._listens()
        if is_there or any(word in lower for word in REFUSED):
            return ConfigError(
                f"{self.address} refuses the credentials: {text}; set {TOKEN_VARIABLE} to USER:PASSWORD"
            )
        if "database" in lower and "not found" in lower:
            return ConfigError(f"{self.address} has no such database: {text}")
        if any(word in lower for word in GONE):
            return StoreError(
                f"{self.address}: the collection is missing: {text}; if Milvus is not just starting, publish another "
                "version, or build again",
                is_gone=True,
            )
        return StoreError(f"{self.address} does not respond: {text}; check that Milvus runs")

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


def require_version(connection: Connection) -> None:
    """Refuses a server without sparse vectors."""
    version: str = connection.call("get_server_version", within_s=BUILD_S)
    numbers = re.search(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < LEAST_VERSION:
        raise ConfigError(f"{connection.address} is Milvus {version}; expected 2.4 or newer")
