"""Access control of requests: the key that each path requires, and rate limits.

A path that the table lacks requires an API key if keys are set, so a forgotten route is not open.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from starlette.types import Scope

from glow.errors import GlowError
from glow_service.access.keys import ADMIN, WRITE, find_name, parse_admin_key, parse_keys
from glow_service.access.rate_limit import RateLimiter, client_of
from glow_service.access.tenants import Tenant
from glow_service.errors import KeyMissingError, KeyRefusedError, RateLimitError, RouteNotFoundError
from glow_service.telemetry import Metrics

__all__ = [
    "ACCESS",
    "Access",
    "AccessControl",
    "access_errors",
    "access_of",
    "client_of_scope",
    "listed_access",
]


class Access(StrEnum):
    """The key that a path requires."""

    OPEN = "open"
    KEY = "key"
    ADMIN = "admin"
    WRITE = "write"


ACCESS: dict[str, Access] = {
    # "/x/*" matches everything below /x/; other paths are exact.
    "/search": Access.KEY,
    "/v1/search": Access.KEY,
    "/search/batch": Access.KEY,
    "/v1/search/batch": Access.KEY,
    "/feedback": Access.KEY,
    "/v1/feedback": Access.KEY,
    "/v1/embeddings": Access.KEY,
    "/v1/models": Access.KEY,
    "/documents": Access.WRITE,
    "/v1/documents": Access.WRITE,
    "/operations/*": Access.WRITE,
    "/v1/operations/*": Access.WRITE,
    "/documents/*": Access.KEY,
    "/v1/documents/*": Access.KEY,
    "/info": Access.KEY,
    "/admin": Access.ADMIN,
    "/admin/*": Access.ADMIN,
    # For load balancers, metric scrapers and documentation; the page asks for a key itself.
    "/healthz": Access.OPEN,
    "/readyz": Access.OPEN,
    "/metrics": Access.OPEN,
    "/problems/*": Access.OPEN,
    "/openapi.json": Access.OPEN,
    "/": Access.OPEN,
    "/docs": Access.OPEN,
    "/static/*": Access.OPEN,
}
_EXACT = {path: access for path, access in ACCESS.items() if not path.endswith("/*")}
_DOCUMENTS = ("/documents/", "/v1/documents/")
READING = ("GET", "HEAD", "OPTIONS")
_BELOW = tuple((path[:-1], access) for path, access in ACCESS.items() if path.endswith("/*"))


def listed_access(path: str) -> Access | None:
    """The table's entry for a path, or None."""
    found = _EXACT.get(path)
    if found is None:
        found = next((access for start, access in _BELOW if path.startswith(start)), None)
    return found


def access_of(path: str, method: str = "GET") -> Access:
    """The access that a decoded path requires; `KEY` if the table lacks it.

    Below /documents, reading requires an API key, and all other methods the write key.
    """
    if method not in READING and path.startswith(_DOCUMENTS):
        return Access.WRITE
    return listed_access(path) or Access.KEY


def access_errors(path: str, method: str = "GET") -> tuple[type[GlowError], ...]:
    """The errors that `AccessControl` may raise for a path, for OpenAPI."""
    errors: dict[Access, tuple[type[GlowError], ...]] = {
        Access.OPEN: (),
        Access.KEY: (KeyMissingError, KeyRefusedError, RateLimitError),
        Access.ADMIN: (KeyMissingError, KeyRefusedError, RouteNotFoundError),
        Access.WRITE: (KeyMissingError, KeyRefusedError, RouteNotFoundError),
    }
    return errors[access_of(path, method)]


class AccessControl:
    """Checks a request by its path, headers and address, before any other work.

    A check takes microseconds and never blocks. Only the event loop may use it, not threads.

    Args:
        metrics: counts refusals.
        api_keys, admin_key, write_key: the settings; "" for none.
        limiter: rate limiter by key or address, shared by all indexes of a process; None: no limit.
        tenants: restrictions of each API key; empty: none.
        collection: name of this index; "" if the service has only one.

    Raises:
        ValueError: if a key setting is malformed.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        api_keys: str = "",
        admin_key: str = "",
        write_key: str = "",
        limiter: RateLimiter | None = None,
        tenants: Mapping[str, Tenant] | None = None,
        collection: str = "",
    ) -> None:
        self._keys = parse_keys(api_keys)
        self._tenants, self._collection = tenants or {}, collection
        admin = parse_admin_key(admin_key)
        self._admin = {ADMIN: admin} if admin is not None else {}
        write = parse_admin_key(write_key)
        self._write = {WRITE: write} if write is not None else {}
        self._limiter = limiter
        self._missing, self._refused, self._limited = (
            metrics.rejected.labels(kind.code) for kind in (KeyMissingError, KeyRefusedError, RateLimitError)
        )

    def check(self, scope: Scope) -> str:
        """Accepts a request, or raises.

        Args:
            scope: ASGI scope of an HTTP request.

        Returns:
            The name of the request's key, for the log line; "" if none was required.

        Raises:
            KeyMissingError: if the path requires a key, and the request has none.
            KeyRefusedError: if the key is not valid for this path, or the request has several different keys.
            RateLimitError: if the key, or the address if no keys are set, exceeds its rate limit.
            RouteNotFoundError: if /admin or writing is disabled.
        """
        wanted = access_of(scope["path"], scope["method"])
        if wanted is Access.OPEN:
            return ""
        if wanted is not Access.KEY:
            keys = self._admin if wanted is Access.ADMIN else self._write
            if not keys:
                raise RouteNotFoundError("no such path; /openapi.json lists every one")
            return self._name(scope, keys)
        name = self._name(scope, self._keys) if self._keys else ""
        tenant = self._tenants.get(name)
        if tenant is not None and tenant.collections and self._collection not in tenant.collections:
            self._refused.inc()
            raise KeyRefusedError("the key is not valid for this collection")
        if self._limiter is not None:
            self._limit(self._limiter, name or client_of_scope(scope))
        return name

    def tenant(self, name: str) -> Tenant | None:
        """The restriction of a key to some documents; None if it may read all."""
        found = self._tenants.get(name)
        return found if found is not None and found.filter is not None else None

    def charge(self, scope: Scope, name: str, cost: int) -> None:
        """Charges a client's rate limit for a request, once its cost is known.

        Args:
            scope: ASGI scope of the request, which `check` accepted.
            name: the name that `check` returned.
            cost: cost of the whole request, >= 1; `check` charged 1.

        Raises:
            RateLimitError: if the client is in debt for an earlier request.
        """
        if self._limiter is None or cost <= 1:
            return
        wait_s = self._limiter.charge(name or client_of_scope(scope), cost - 1)
        if wait_s:
            self._limited.inc()
            raise RateLimitError(
                f"earlier requests exceeded the rate limit; send the next one in {wait_s} s",
                wait_s,
            )

    def owe(self, scope: Scope, name: str, cost: int) -> None:
        """Charges a client for work that was already done; its next requests have to wait for it.

        Args:
            scope: ASGI scope of the request, which `check` accepted.
            name: the name that `check` returned.
            cost: cost of that work, >= 0.
        """
        if self._limiter is not None and cost:
            self._limiter.owe(name or client_of_scope(scope), cost)

    def _name(self, scope: Scope, digests: dict[str, bytes]) -> str:
        given = set(_presented(scope["headers"]))
        if not given:
            self._missing.inc()
            raise KeyMissingError(
                "this path requires a key; send Authorization: Bearer KEY, or X-API-Key: KEY"
            )
        if len(given) > 1:
            self._refused.inc()
            raise KeyRefusedError("the request has several different keys; send only one")
        name = find_name(given.pop(), digests)
        if name is None:
            self._refused.inc()
            raise KeyRefusedError("the key is not valid for this path")
        return name

    def _limit(self, limiter: RateLimiter, client: str) -> None:
        wait_s = limiter.take(client)
        if wait_s:
            self._limited.inc()
            raise RateLimitError(f"too many requests; send the next one in {wait_s} s", wait_s)


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
