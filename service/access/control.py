"""Access control of requests: rate limits, other origins, and the key that each path requires.

A path that the table lacks requires an API key if keys are set, so a forgotten route is not open.
"""

import math
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from starlette.types import Scope

from glow.errors import GlowError
from glow_service.access.keys import ADMIN, WRITE, Tenant, find_name, parse_admin_key, parse_keys
from glow_service.errors import KeyMissingError, KeyRefusedError, RateLimitError, RouteNotFoundError
from glow_service.telemetry import Metrics

MAX_CLIENTS = 16_384
"""Most clients in the table, of about 300 bytes each."""

_SLACK = 1e-6
"""Tolerance in tokens, so that rounding does not refuse a client who waited exactly as long as requested."""
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"
_MAX_CLIENT_CHARS = 64


class RateLimiter:
    """Token buckets of up to `burst` tokens: a request takes its cost, and `rate` tokens return each second.

    A request needs one token to start, and pays the rest of its cost on credit. So a request that costs more than
    the burst can run; its client then waits until the debt is paid.

    Not thread-safe; only the event loop may use it.
    """

    def __init__(
        self, rate: float, burst: int, max_clients: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._max_clients = max_clients
        self._clock = clock
        # A dict keeps insertion order: a used bucket is inserted again, so the first one is the least recently used.
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str) -> int:
        """Takes the token that a request needs to start; returns 0, or whole seconds (>= 1) until there is one."""
        return self._take(client, 1.0, needed=1.0)

    def charge(self, client: str, cost: int) -> int:
        """Takes the rest of a request's cost on credit, and returns 0.

        For a client in debt, gives the first token back and returns whole seconds (>= 1) until the debt is paid.
        """
        wait_s = self._take(client, float(cost), needed=0.0)
        if wait_s:
            self._take(client, -1.0, needed=-math.inf)
        return wait_s

    def _take(self, client: str, cost: float, needed: float) -> int:
        now = self._clock()
        tokens, then = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        lacking = needed - tokens
        if lacking <= _SLACK:
            tokens = min(self._burst, tokens - cost)
        self._buckets[client] = (tokens, now)
        if len(self._buckets) > self._max_clients:
            del self._buckets[next(iter(self._buckets))]
        return 0 if lacking <= _SLACK else max(1, math.ceil(lacking / self._rate))


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of clients, shared by all indexes of this process."""

    requests: RateLimiter | None  # requests per key, or per address if no keys are set; None: no limit
    feedback: RateLimiter  # clicks and judgments per person


def client_of(host: str) -> str:
    """The client of an address: IPv4, or the /64 of IPv6; other text from a proxy, cut to 64 characters."""
    if ":" not in host:
        return host[:_MAX_CLIENT_CHARS]
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except (OSError, ValueError):
        return host[:_MAX_CLIENT_CHARS]
    if packed.startswith(_MAPPED_IPV4):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return packed[:8].hex() + "::/64"


# The setting `cors_origins`: the sites whose pages may read responses, as options of Starlette's CORSMiddleware.

# An origin in the form that browsers send (RFC 6454, section 6.2): lower case, no path, no default port, ASCII names.
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::(?P<port>[1-9]\d{0,4}))?"
)


def parse_origins(text: str) -> tuple[str, ...]:
    """The distinct origins of the setting `cors_origins`; raises for one in a form that browsers never send."""
    origins = tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text.strip() else ()
    for origin in origins if origins != ("*",) else ():
        if origin == "*":
            raise ValueError("cors_origins: '*' allows every origin; remove the other origins")
        match = _ORIGIN.fullmatch(origin)
        if match is None or int(match["port"] or 0) > 65_535:
            raise ValueError(
                f"cors_origins: found {origin!r:.80}, expected scheme://host or scheme://host:port in lower case, "
                "without path or slash at the end, such as https://www.example.org"
            )
        if (match["scheme"], match["port"]) in (("http", "80"), ("https", "443")):
            raise ValueError(
                f"cors_origins: found {origin!r:.80}; remove the default port, which browsers do not send"
            )
    return origins


def cors_options(origins: str) -> dict[str, Any]:
    """Arguments for Starlette's CORSMiddleware; empty if no origin is allowed: then it is not needed."""
    allowed = parse_origins(origins)
    if not allowed:
        return {}
    return {
        "allow_origins": allowed,
        "allow_methods": ("GET", "HEAD", "POST"),
        "allow_headers": ("Authorization", "Content-Type", "X-API-Key", "X-Request-ID"),
        "expose_headers": ("Retry-After", "Server-Timing", "X-Index-Version", "X-Request-ID"),
        "allow_credentials": False,  # there are no cookies: only a page's own script sends a key
        "max_age": 600,
    }


class Access(StrEnum):
    """The key that a path requires."""

    OPEN = "open"
    KEY = "key"
    ADMIN = "admin"
    WRITE = "write"


# "/x/*" matches everything below /x/; other paths are exact. The first ones exist below /v1 too.
_BOTH = {
    "/search": Access.KEY,
    "/search/batch": Access.KEY,
    "/feedback": Access.KEY,
    "/documents": Access.WRITE,
    "/documents/*": Access.KEY,
    "/operations/*": Access.WRITE,
}
# For load balancers, metric scrapers and documentation; the page asks for a key itself.
_OPEN = (
    "/healthz", "/readyz", "/metrics", "/problems/*", "/openapi.json", "/", "/docs", "/static/*",
)  # fmt: skip
ACCESS: dict[str, Access] = {
    **_BOTH,
    **{f"/v1{path}": access for path, access in _BOTH.items()},
    **dict.fromkeys(("/v1/embeddings", "/v1/models", "/info"), Access.KEY),
    **dict.fromkeys(("/admin", "/admin/*"), Access.ADMIN),
    **dict.fromkeys(_OPEN, Access.OPEN),
}
_BELOW = tuple((path[:-1], access) for path, access in ACCESS.items() if path.endswith("/*"))


def listed_access(path: str) -> Access | None:
    """The table's entry for a path, or None."""
    if path in ACCESS and not path.endswith("/*"):
        return ACCESS[path]
    return next((access for start, access in _BELOW if path.startswith(start)), None)


def access_of(path: str, method: str = "GET") -> Access:
    """The access that a decoded path requires; `KEY` if the table lacks it.

    Below /documents, reading requires an API key, and all other methods the write key.
    """
    if method not in ("GET", "HEAD", "OPTIONS") and path.startswith(("/documents/", "/v1/documents/")):
        return Access.WRITE
    return listed_access(path) or Access.KEY


def access_errors(path: str, method: str = "GET") -> tuple[type[GlowError], ...]:
    """The errors that `AccessControl` may raise for a path, for OpenAPI."""
    access = access_of(path, method)
    if access is Access.OPEN:
        return ()
    return (
        KeyMissingError,
        KeyRefusedError,
        RateLimitError if access is Access.KEY else RouteNotFoundError,
    )


class AccessControl:
    """Checks a request by its path, headers and address, before any other work.

    A check takes microseconds and never blocks. Only the event loop may use it, not threads.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        api_keys: str = "",
        admin_key: str = "",
        write_key: str = "",
        limiter: RateLimiter | None = None,
        tenants: Mapping[str, Tenant] | None = None,  # restrictions of each API key; empty: none
        collection: str = "",  # name of this index; "" if the service has only one
    ) -> None:
        self._tenants, self._collection, self._limiter = tenants or {}, collection, limiter
        admin, write = parse_admin_key(admin_key), parse_admin_key(write_key)
        self._keys = {
            Access.KEY: parse_keys(api_keys),
            Access.ADMIN: {ADMIN: admin} if admin else {},
            Access.WRITE: {WRITE: write} if write else {},
        }
        self._missing, self._refused, self._limited = (
            metrics.rejected.labels(kind.code) for kind in (KeyMissingError, KeyRefusedError, RateLimitError)
        )

    def check(self, scope: Scope) -> str:
        """Accepts a request or raises; returns the name of its key for the log line, "" if none was required."""
        wanted = access_of(scope["path"], scope["method"])
        if wanted is Access.OPEN:
            return ""
        keys = self._keys[wanted]
        if wanted is not Access.KEY and not keys:
            raise RouteNotFoundError("no such path; /openapi.json lists every one")
        name = self._name(scope, keys) if keys else ""
        if wanted is not Access.KEY:
            return name
        tenant = self._tenants.get(name)
        if tenant is not None and tenant.collections and self._collection not in tenant.collections:
            self._refused.inc()
            raise KeyRefusedError("the key is not valid for this collection")
        if self._limiter is not None:
            wait_s = self._limiter.take(name or client_of_scope(scope))
            self._wait(wait_s, f"too many requests; send the next one in {wait_s} s")
        return name

    def tenant(self, name: str) -> Tenant | None:
        """The restriction of a key to some documents; None if it may read all."""
        found = self._tenants.get(name)
        return found if found is not None and found.filter is not None else None

    def charge(self, scope: Scope, name: str, cost: int) -> None:
        """Charges a client's rate limit for an accepted request, once its cost (>= 1) is known; `check` charged 1."""
        if self._limiter is None or cost <= 1:
            return
        wait_s = self._limiter.charge(name or client_of_scope(scope), cost - 1)
        self._wait(wait_s, f"earlier requests exceeded the rate limit; send the next one in {wait_s} s")

    def _name(self, scope: Scope, digests: dict[str, bytes]) -> str:
        given = set(_presented(scope["headers"]))
        if not given:
            self._missing.inc()
            raise KeyMissingError(
                "this path requires a key; send Authorization: Bearer KEY, or X-API-Key: KEY"
            )
        name = find_name(given.pop(), digests) if len(given) == 1 else None
        if name is None:
            self._refused.inc()
            several = "the request has several different keys; send only one"
            raise KeyRefusedError(several if given else "the key is not valid for this path")
        return name

    def _wait(self, wait_s: int, message: str) -> None:
        if wait_s:
            self._limited.inc()
            raise RateLimitError(message, wait_s)


def _presented(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[bytes]:
    """The keys in a request's headers; empty headers and other schemes, such as a proxy's Basic, are ignored."""
    for name, value in headers:
        if name == b"x-api-key":
            key = value.strip()
        elif name == b"authorization":
            scheme, _, rest = value.strip().partition(b" ")
            key = rest.strip() if scheme.lower() == b"bearer" else b""
        else:
            continue
        if key:
            yield key


def client_of_scope(scope: Scope) -> str:
    """The client of a request by its address; "" if there is none."""
    client = scope.get("client")
    return client_of(client[0]) if client else ""
