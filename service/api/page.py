"""The search page: its files, and the policy under which a browser runs them."""

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_HTML = "text/html; charset=utf-8"
_FOLDER = Path(__file__).parent.parent / "page"
_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_SCRIPTS = (
    "address app docs dom examples explanation feedback filters keys marks problem reading request results server "
    "stop-words typing"
).split()
_STYLES = ("docs", "style", "results", "explanation", "filters")
_STATIC = (*(f"{name}.js" for name in _SCRIPTS), *(f"{name}.css" for name in _STYLES), "icon.svg")
PAGE_FILES = {
    "/": ("index.html", _HTML),
    "/docs": ("docs.html", _HTML),
    **{f"/static/{name}": (name, _MEDIA_TYPES[Path(name).suffix]) for name in _STATIC},
}
# The page may only load its own files and send requests to its own server.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


async def get_page_file(request: Request) -> Response:
    """One of `PAGE_FILES`."""
    name, media_type = PAGE_FILES[request.scope["route"].path]
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "Content-Type": media_type}
    return Response(_content(name), headers=headers)


@cache
def _content(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
