"""The setting `cors_origins`: the sites whose pages may read responses, as options of Starlette's CORSMiddleware."""

import re
from typing import Any

__all__ = ["cors_options", "parse_origins"]

# An origin in the form that browsers send (RFC 6454, section 6.2): lower case, no path, no default port, ASCII names.
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::(?P<port>[1-9]\d{0,4}))?"
)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_ALLOWED_HEADERS = ("Authorization", "Content-Type", "X-API-Key", "X-Request-ID")
_EXPOSED_HEADERS = ("Retry-After", "Server-Timing", "X-Index-Version", "X-Request-ID")
_PREFLIGHT_SECONDS = 600


def parse_origins(text: str) -> tuple[str, ...]:
    """Parses the setting `cors_origins`.

    Args:
        text: origins separated by commas, or only `*`; "" for none.

    Returns:
        The distinct origins, in order.

    Raises:
        ValueError: if an origin is not in the form that browsers send, so it would never match.
    """
    origins = tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text.strip() else ()
    if origins == ("*",):
        return origins
    for origin in origins:
        if origin == "*":
            raise ValueError("cors_origins: '*' allows every origin; remove the other origins")
        match = _ORIGIN.fullmatch(origin)
        if match is None or int(match["port"] or 0) > 65_535:
            raise ValueError(
                f"cors_origins: found {origin!r:.80}, expected scheme://host or scheme://host:port in lower case, "
                "without path or slash at the end, such as https://www.example.org"
            )
        if match["port"] is not None and match["port"] == _DEFAULT_PORTS.get(match["scheme"]):
            raise ValueError(
                f"cors_origins: found {origin!r:.80}; remove the default port, which browsers do not send"
            )
    return origins


def cors_options(origins: str) -> dict[str, Any]:
    """Arguments for Starlette's CORSMiddleware.

    Args:
        origins: the setting `cors_origins`.

    Returns:
        The arguments; empty if no origin is allowed: then the middleware is not needed.

    Raises:
        ValueError: as for `parse_origins`.
    """
    allowed = parse_origins(origins)
    if not allowed:
        return {}
    return {
        "allow_origins": allowed,
        "allow_methods": ("GET", "HEAD", "POST"),
        "allow_headers": _ALLOWED_HEADERS,
        "expose_headers": _EXPOSED_HEADERS,
        # There are no cookies: only a page's own script sends a key.
        "allow_credentials": False,
        "max_age": _PREFLIGHT_SECONDS,
    }
