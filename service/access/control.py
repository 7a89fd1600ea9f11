"""Who may ask for what: one table of paths, the key that a request brings, and how often it may ask.

A path that the table does not name needs a key wherever keys are set, so a route that is forgotten here is closed.
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
    """What a path asks of whoever sends a request to it."""

    OPEN = "open"
    KEY = "key"
    ADMIN = "admin"
    WRITE = "write"


ACCESS: dict[str, Access] = {
    # "/x/*" is everything below /x/; the other paths are exact.
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
    # What load balancers, scrapers and readers of errors need, and the page, which asks for a key itself.
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
    """The row of the table that a path falls under, or None."""
    found = _EXACT.get(path)
    if found is None:
        found = next((access for start, access in _BELOW if path.startswith(start)), None)
    return found


def access_of(path: str, method: str = "GET") -> Access:
    """What a path, decoded as the router sees it, asks for; `KEY` where the table does not name it.

    Below /documents who only reads needs a key for searching, and every other method the one for writing.
    """
    if method not in READING and path.startswith(_DOCUMENTS):
        return Access.WRITE
    return listed_access(path) or Access.KEY


def access_errors(path: str, method: str = "GET") -> tuple[type[GlowError], ...]:
    """The errors that `AccessControl` may answer a path with; for OpenAPI."""
    errors: dict[Access, tuple[type[GlowError], ...]] = {
        Access.OPEN: (),
        Access.KEY: (KeyMissingError, KeyRefusedError, RateLimitError),
        Access.ADMIN: (KeyMissingError, KeyRefusedError, RouteNotFoundError),
        Access.WRITE: (KeyMissingError, KeyRefusedError, RouteNotFoundError),
    }
    return errors[access_of(path, method)]


class AccessControl:
    """Decides about a request from its path, headers and address alone, before anything else is done for it.

    A check takes some microseconds and never waits. It belongs to the event loop: no threads.

    Args:
        metrics: where refusals are counted.
        api_keys, admin_key, write_key: as the settings hold them; "" for none.
        limiter: of requests, by key or address; those of several indexes of one process share it. None for no limit.
        tenants: what each API key opens; empty: all of them open everything.
        collection: name of what is asked for here; "" where a service has one.

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
        """Lets a request pass, or raises.

        Args:
            scope: of an HTTP request.

        Returns:
            The name of the key that it was let in by, for the log line; "" where none was needed.

        Raises:
            KeyMissingError: if the path needs a key, and none came.
            KeyRefusedError: if the key is not one of those that open this path, or several different ones came.
            RateLimitError: if the key, or the address where no keys are set, sends more than it may.
            RouteNotFoundError: if /admin or writing is off.
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
            raise KeyRefusedError("the key does not open this collection")
        if self._limiter is not None:
            self._limit(self._limiter, name or client_of_scope(scope))
        return name

    def tenant(self, name: str) -> Tenant | None:
        """What a key opens; None where that is everything here."""
        found = self._tenants.get(name)
        return found if found is not None and found.filter is not None else None

    def charge(self, scope: Scope, name: str, cost: int) -> None:
        """Takes from a client's rate what its request costs, once that is known.

        Args:
            scope: of the request, which `check` let pass.
            name: what `check` returned.
            cost: of the whole request, >= 1; `check` took 1.

        Raises:
            RateLimitError: if the client still owes for an earlier request.
        """
        if self._limiter is None or cost <= 1:
            return
        wait_s = self._limiter.charge(name or client_of_scope(scope), cost - 1)
        if wait_s:
            self._limited.inc()
            raise RateLimitError(
                f"earlier requests cost more than the rate limit gives; the next one may come in {wait_s} s",
                wait_s,
            )

    def owe(self, scope: Scope, name: str, cost: int) -> None:
        """Has a client owe what work cost that was done already; its next requests wait for that.

        Args:
            scope: of the request, which `check` let pass.
            name: what `check` returned.
            cost: of that work, >= 0.
        """
        if self._limiter is not None and cost:
            self._limiter.owe(name or client_of_scope(scope), cost)

    def _name(self, scope: Scope, digests: dict[str, bytes]) -> str:
        given = set(_presented(scope["headers"]))
        if not given:
            self._missing.inc()
            raise KeyMissingError(
                "this path needs a key, and none came; send Authorization: Bearer KEY, or X-API-Key: KEY"
            )
        if len(given) > 1:
            self._refused.inc()
            raise KeyRefusedError("the request has several different keys; send one")
        name = find_name(given.pop(), digests)
        if name is None:
            self._refused.inc()
            raise KeyRefusedError("the key is none of those that open this path")
        return name

    def _limit(self, limiter: RateLimiter, client: str) -> None:
        wait_s = limiter.take(client)
        if wait_s:
            self._limited.inc()
            raise RateLimitError(f"too many requests; the next one may come in {wait_s} s", wait_s)


def _presented(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[bytes]:
    """Every key of a request; a header that is empty or holds another scheme, such as a proxy's Basic, holds none."""
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
    """Who sent a request, by the address; "" where it has none."""
    client = scope.get("client")
    return client_of(client[0]) if client else ""
