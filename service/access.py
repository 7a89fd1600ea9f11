"""Access control of requests: the key that each path requires, tenants, rate limits, other origins, and signed ids.

A path that the table lacks requires an API key if keys are set. Settings contain SHA-256 digests of keys: a plain
SHA-256 is enough because keys are random, unlike passwords that people choose.
"""

import hashlib
import hmac
import ipaddress
import math
import re
import secrets
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.types import Scope

from glow.errors import ConfigError, GlowError
from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.columns.filters import CONDITIONS, parse_filter
from glow.index.stored_fields import STORED_FIELDS, not_found
from glow.options import StrictModel, describe
from glow_service.errors import KeyMissingError, KeyRefusedError, RateLimitError, RouteNotFoundError
from glow_service.telemetry.metrics import Metrics

ADMIN = "admin"
"""Name of the admin key in log lines; reserved."""
WRITE = "write"
"""Name of the write key; reserved."""
MAX_KEY_BYTES = 1_024
"""A longer key is refused without hashing it."""
_KEY_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
_HOW = "`glow key NAME` makes one"


def parse_keys(text: str) -> dict[str, bytes]:
    """The API keys of a setting `name:hex,name:hex`: name -> SHA-256 digest (32 bytes). Errors show no key."""
    digests: dict[str, bytes] = {}
    entries = text.split(",") if text.strip() else []
    for position, entry in enumerate(entries, start=1):
        place = f"api_keys: entry {position} of {len(entries)}"
        name, colon, text_of_digest = (part.strip() for part in entry.partition(":"))
        if not colon:
            raise ValueError(f"{place} has no colon; expected name:SHA-256, {_HOW}")
        _check_name(name, place)
        digest = _parse_digest(text_of_digest, place)
        if name in digests or digest in digests.values():
            raise ValueError(f"{place} repeats the name or the key of an earlier one; make another key")
        digests[name] = digest
    return digests


def parse_key(text: str, setting: str = "admin_key") -> bytes | None:
    """The SHA-256 digest (32 bytes) of the setting `admin_key` or `write_key`; None for no key."""
    return _parse_digest(text.strip(), f"{setting}: it") if text.strip() else None


def check_keys(api_keys: str, admin_key: str, write_key: str = "") -> None:
    """Checks the three settings, and that the admin key and the write key differ from all other keys."""
    others: list[bytes | None] = [*parse_keys(api_keys).values()]
    for setting, text in (("admin_key", admin_key), ("write_key", write_key)):
        digest = parse_key(text, setting)
        if digest is not None and digest in others:
            raise ValueError(f"{setting}: it is also another setting's key; make a separate key")
        others.append(digest)


def find_name(key: bytes, digests: Mapping[str, bytes]) -> str | None:
    """The name of a key, compared with every digest in constant time; None if it is unknown."""
    if len(key) > MAX_KEY_BYTES:
        return None
    digest_of_key = hashlib.sha256(key).digest()
    match = None
    for name, digest in digests.items():
        if hmac.compare_digest(digest_of_key, digest):
            match = name
    return match


def _check_name(name: str, place: str) -> None:
    if not _NAME.fullmatch(name) or name in (ADMIN, WRITE):
        raise ValueError(
            f"{place}: the name has {len(name)} characters; expected 1 to 64 of A-Z a-z 0-9 . _ - "
            f"and not '{ADMIN}' or '{WRITE}'"
        )


def _parse_digest(text: str, place: str) -> bytes:
    if not _DIGEST.fullmatch(text):
        raise ValueError(
            f"{place} has {len(text)} characters, expected the 64 hexadecimal digits of a SHA-256; "
            f"settings contain a key's hash, never the key; {_HOW}"
        )
    return bytes.fromhex(text)


def make_key(name: str = "", *, is_admin: bool = False, is_write: bool = False) -> tuple[str, str]:
    """Makes a key, to be shown once, and its entry for the settings, such as `NAME:SHA-256`."""
    if is_admin + is_write + bool(name) != 1:
        raise ConfigError("give exactly one of NAME, --admin and --write")
    if name:
        try:
            _check_name(name, "NAME")
        except ValueError as error:
            raise ConfigError(str(error)) from error
    key = secrets.token_urlsafe(_KEY_BYTES)
    digest = hashlib.sha256(key.encode()).hexdigest()
    return key, f"{name}:{digest}" if name else f"GLOW_{'ADMIN' if is_admin else 'WRITE'}_KEY={digest}"


# Signed request ids, so that the service can recognize its own ids in feedback without storing them. A signature, a
# keyed hash of the id, follows it. Every process with the same key can check it.

SIGNATURE_CHARACTERS = 24
"""Length in hexadecimal digits: 96 bits, too many to guess by sending requests."""


class RequestIds:
    """Signs the ids of searches, and checks the ids in feedback; an empty key does neither."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def signed(self, request_id: str) -> str:
        """The id with its signature, for a response."""
        return f"{request_id}.{self._signature(request_id)}" if self._key else request_id

    def read(self, signed: str) -> str | None:
        """The id without its signature, as in the logs; None if the signature is invalid."""
        if not self._key:
            return signed
        request_id, _, signature = signed.rpartition(".")
        expected = self._signature(request_id)
        return request_id if hmac.compare_digest(signature.encode(), expected.encode()) else None

    def _signature(self, request_id: str) -> str:
        digest = hmac.new(self._key, request_id.encode("utf-8", "replace"), hashlib.sha256)
        return digest.hexdigest()[:SIGNATURE_CHARACTERS]


# Tenants: API keys that are limited to some collections, and to the documents that match a filter. The file is TOML
# with one table per API key. A key without a table is an error, so that no key is open by mistake:
#
#     [alice]
#     collections = ["books"]
#     filter = {field = "owner", eq = "alice"}
#
#     [operator]          # everything

MAX_DEPTH = 16
"""Most nested groups of a filter; searches have the same limit."""


class Tenant(StrictModel):
    """The collections and documents that a key may read."""

    collections: tuple[str, ...] = ()  # names of collections; empty: all
    filter: dict[str, Any] | None = None  # documents that can be found, counted or read; None: all


def read_tenants(
    path: str, names: Collection[str], collections: Collection[str] | None = None
) -> dict[str, Tenant]:
    """Reads the tenants file: name of a key -> its tenant; empty without a file, so that no key is limited."""
    if not path:
        return {}
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        tenants = {name: Tenant.model_validate(table) for name, table in tables.items()}
    except ValidationError as error:
        raise ValueError(f"tenants: {describe(error)}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"tenants: cannot read the file: {error}") from None
    faults = [f"no table for the API key {name}" for name in sorted(set(names) - set(tenants))]
    faults += [f"[{name}] is not the name of an API key" for name in sorted(set(tenants) - set(names))]
    if faults or not names:
        raise ValueError(
            f"tenants: {'; '.join(faults) or 'there are no API keys'}; every key needs its own table"
        )
    for name, tenant in tenants.items():
        place = f"tenants: [{name}]"
        if "collections" in tables[name] and not tenant.collections:
            raise ValueError(f"{place} collections is an empty list; remove it to allow all of them")
        if collections is not None and (unknown := set(tenant.collections) - set(collections)):
            raise ValueError(
                f"{place} collections has {', '.join(map(repr, sorted(unknown)))}, expected names of served indexes: "
                f"{', '.join(sorted(collections))}"
            )
        if tenant.filter is not None and _verdict(tenant.filter, place) is True:
            raise ValueError(f"{place} filter restricts nothing; remove it to allow all documents")
    return tenants


def _verdict(value: Any, place: str, depth: int = 1) -> bool | None:
    """Whether the groups of a filter alone match every document or none; None if conditions decide."""
    if depth > MAX_DEPTH:
        raise ValueError(f"{place} filter is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, dict) or not isinstance(value.get("field", ""), str):
        raise ValueError(f"{place} filter has {str(value)[:60]}, expected an object of fields and conditions")
    if "field" in value:
        return None
    verdicts = set[bool | None]()
    for name, inner in value.items():
        if name == "not":
            verdict = _verdict(inner, place, depth + 1)
            verdicts.add(None if verdict is None else not verdict)
        elif name in ("and", "or") and isinstance(inner, list):
            verdicts.add(_joined({_verdict(each, place, depth + 1) for each in inner}, decisive=name == "or"))
        elif name in ("and", "or", *CONDITIONS):
            raise ValueError(f"{place} filter has {name} = {str(inner)[:60]}, expected a list, or a field")
        else:
            verdicts.add(None)
    return _joined(verdicts, decisive=False)


def _joined(verdicts: set[bool | None], *, decisive: bool) -> bool | None:
    return decisive if decisive in verdicts else None if None in verdicts else not decisive


def require_visible(document_id: str, tenant: Tenant | None, index: Index, check: Callable[[], None]) -> None:
    """Raises the error of a missing document if a key may not read a document."""
    if tenant is None:
        return
    row, metadata = index[STORED_FIELDS].find(document_id), index[COLUMNS]
    mask = metadata.masks.mask(parse_filter(tenant.filter, metadata.columns), check)
    if row is None or not mask.mask[row]:
        raise not_found(document_id)


# Rate limits of clients.

MAX_CLIENTS = 16_384
"""Most clients in the table, of about 300 bytes each."""

_SLACK = 1e-6
"""Tolerance in tokens, so that rounding does not refuse a client who waited exactly as long as requested."""
_MAX_CLIENT_CHARS = 64


class RateLimiter:
    """Token buckets of up to `burst` tokens: a request takes its cost, and `rate` tokens return each second.

    A request needs one token to start, and pays the rest of its cost on credit; its client then waits until the debt
    is paid. Only the event loop may use it.
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
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host[:_MAX_CLIENT_CHARS]
    return str(address.ipv4_mapped) if address.ipv4_mapped else address.packed[:8].hex() + "::/64"


# The setting `cors_origins`: the sites whose pages may read responses, as options of Starlette's CORSMiddleware.

# An origin in the form that browsers send (RFC 6454, section 6.2): lower case, no path, ASCII names.
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::(?P<port>[1-9]\d{0,4}))?"
)
_DEFAULT_PORTS = (("http", "80"), ("https", "443"))  # browsers do not send them


def parse_origins(text: str) -> tuple[str, ...]:
    """The distinct origins of the setting `cors_origins`; raises for one in a form that browsers never send."""
    origins = tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text.strip() else ()
    for origin in origins if origins != ("*",) else ():
        match = _ORIGIN.fullmatch(origin)
        if not match or match.group("scheme", "port") in _DEFAULT_PORTS or int(match["port"] or 0) > 65_535:
            raise ValueError(
                f"cors_origins: found {origin!r:.80}, expected scheme://host[:port] in lower case, without default port, "
                "path or slash at the end, such as https://www.example.org; or only '*'"
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
        "allow_credentials": False,  # no cookies are used: only a page's own script sends a key
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
    "/suggest": Access.KEY,
    "/explain": Access.KEY,
    "/feedback": Access.KEY,
    "/documents": Access.KEY,
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

    For /documents and below it, reading requires an API key, and all other methods the write key.
    """
    is_document = path.removeprefix("/v1").split("/")[:2] == ["", "documents"]
    if is_document and method not in ("GET", "HEAD", "OPTIONS"):
        return Access.WRITE
    return listed_access(path) or Access.KEY


def access_errors(path: str, method: str = "GET") -> tuple[type[GlowError], ...]:
    """The errors that `AccessControl` may raise for a path, for OpenAPI."""
    access = access_of(path, method)
    beyond = RateLimitError if access is Access.KEY else RouteNotFoundError
    return () if access is Access.OPEN else (KeyMissingError, KeyRefusedError, beyond)


class AccessControl:
    """Checks a request by its path, headers and address in microseconds; only the event loop may use it."""

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
        admin, write = parse_key(admin_key), parse_key(write_key)
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
        access = access_of(scope["path"], scope["method"])
        if access is Access.OPEN:
            return ""
        keys = self._keys[access]
        if access is not Access.KEY and not keys:
            raise RouteNotFoundError("no such path; /openapi.json lists every one")
        name = self._name(scope, keys) if keys else ""
        if access is not Access.KEY:
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
        tenant = self._tenants.get(name)
        return tenant if tenant and tenant.filter is not None else None

    def charge(self, scope: Scope, name: str, cost: int) -> None:
        """Charges a client's rate limit for an accepted request, once its cost (>= 1) is known; `check` charged 1."""
        if self._limiter is None or cost <= 1:
            return
        wait_s = self._limiter.charge(name or client_of_scope(scope), cost - 1)
        self._wait(wait_s, f"earlier requests exceeded the rate limit; send the next one in {wait_s} s")

    def _name(self, scope: Scope, digests: dict[str, bytes]) -> str:
        keys = set(_presented(scope["headers"]))
        if not keys:
            self._missing.inc()
            raise KeyMissingError(
                "this path requires a key; send Authorization: Bearer KEY, or X-API-Key: KEY"
            )
        name = find_name(keys.pop(), digests) if len(keys) == 1 else None
        if name is None:
            self._refused.inc()
            several = "the request has several different keys; send only one"
            raise KeyRefusedError(several if keys else "the key is not valid for this path")
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
