"""The search page: three small files and an icon, read once, nothing from elsewhere."""

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["PAGE_FILES", "page_route"]

_FOLDER = Path(__file__).parent.parent / "page"
PAGE_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/static/style.css": ("style.css", "text/css; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
# The page may load its own files and ask its own server, and nothing else.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def page_route(path: str) -> Callable[[Request], Awaitable[Response]]:
    """The handler of one of `PAGE_FILES`."""
    name, media_type = PAGE_FILES[path]

    async def get_page_file(request: Request) -> Response:
        headers = {
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-cache",
            "Content-Type": media_type,
        }
        return Response(_content(name), headers=headers)

    return get_page_file


@cache
def _content(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
