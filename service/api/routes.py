"""How routes are declared: a decorator that names paths, problems and shapes; FastAPI reads bodies and makes OpenAPI."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from msgspec.json import schema_components
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from glow import __version__
from glow.contract import IndexInfo, Problem, Record
from glow.errors import GlowError
from glow_service import errors
from glow_service.access import Access, access_errors, access_of
from glow_service.api.body import BoundedRequest
from glow_service.api.problems import responses_of
from glow_service.settings import Settings

_REF = "#/components/schemas/{name}"
_TAGS = {
    "search": "Search.",
    "documents": "Read and write documents.",
    "embeddings": "Vectors, in the format of OpenAI's API.",
    "operations": "Health, metrics, and service information.",
    "admin": "Change the live version, with the admin key.",
}
_PARAMETERS = {
    "/documents": "The document's id.",
    "/operations": "The operation's id, from the response to a write.",
    "/problems": "A problem code.",
}
_SCHEMES: dict[str, Any] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key; for /admin, the admin key; for writes, the write key.",
    },
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key."},
}
BODY_ERRORS = (
    errors.MalformedJsonError,
    errors.BodyTooLargeError,
    errors.MediaTypeError,
    errors.DeadlineError,
    errors.RequestError,
)

Handler = Callable[..., Awaitable[Response]]
_H = TypeVar("_H", bound=Handler)
MostBytes = Callable[[Settings], int]


@dataclass(frozen=True, slots=True)
class Route:
    """One route."""

    paths: tuple[str, ...]  # the path and its aliases
    method: str  # GET (which also serves HEAD), POST, PATCH or DELETE
    handler: Handler  # makes the response
    errors: Sequence[type[GlowError]]  # the errors of its responses, except the internal one
    answer: type[Record] | None  # shape of its response, if documented
    body: type[BaseModel] | None  # shape of its request
    tag: str
    example: dict[str, Any] | None  # an example of its request's body
    most_bytes: MostBytes  # largest body
    parameters: Callable[[], list[dict[str, Any]]]  # of the address, for OpenAPI


ROUTES: list[Route] = []
"""All routes, in the order of their declaration."""


def route(
    method: str,
    path: str,
    *,
    errors: Sequence[type[GlowError]] = (),
    answer: type[Record] | None = None,
    body: type[BaseModel] | None = None,
    tag: str = "operations",
    example: dict[str, Any] | None = None,
    most_bytes: MostBytes = lambda settings: settings.max_body_bytes,
    parameters: Callable[[], list[dict[str, Any]]] = list,
) -> Callable[[_H], _H]:
    """Declares a route; those of search and documents stand below `/v1`, too.

    A handler with the argument `body` gets it validated; others read the request themselves.
    """
    paths = (path, f"/v1{path}") if tag in ("search", "documents") else (path,)

    def declare(handler: _H) -> _H:
        ROUTES.append(
            Route(paths, method, handler, errors, answer, body, tag, example, most_bytes, parameters)
        )
        return handler

    return declare


class GlowRoute(APIRoute):
    """A route whose bodies are read with limits.

    Its pattern matches the whole path: Starlette's ignores a line feed at the end, and does not match one inside an id.
    """

    def __init__(self, path: str, endpoint: Handler, **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler of a request with limits."""
        if self.body_field is None:
            plain: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
            return plain
        handler = super().get_route_handler()
        most_bytes = next(each.most_bytes for each in ROUTES if each.handler is self.endpoint)
        needs_body = self.body_field.field_info.is_required()

        async def handle(request: Request) -> Response:
            return await handler(BoundedRequest(request, most_bytes, needs_body=needs_body))

        return handle


# The search page: its files, and the policy under which a browser runs them.

_HTML = "text/html; charset=utf-8"
_read = cache(Path.read_bytes)
_FOLDER = Path(__file__).parent.parent / "page"
_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_SCRIPTS = (
    "address app docs document dom examples explanation feedback filters keys marks problem reading request results "
    "server sort stop-words suggest typing"
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
    """A file of the search page."""
    name, media_type = PAGE_FILES[request.scope["route"].path]
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "Content-Type": media_type}
    return Response(_read(_FOLDER / name), headers=headers)


def add_routes(app: FastAPI, *, page: bool) -> None:
    """Adds every route to the app, and the search page if `page`."""
    app.router.route_class = GlowRoute
    # Starlette tries one route after the other, and most requests are searches.
    for each in sorted(ROUTES, key=lambda each: each.tag != "search"):
        for path in each.paths:
            app.add_api_route(
                path,
                each.handler,
                methods=[each.method],
                response_class=Response,
                responses=responses_of((*each.errors, *access_errors(path, each.method), GlowError)),
                openapi_extra=_extra(each, path),
                summary=(each.handler.__doc__ or "").rstrip("."),
                tags=[each.tag],
                operation_id=each.handler.__name__ + ("_v1" if path.startswith("/v1/") else ""),
            )
            if each.method == "GET":
                app.add_api_route(path, each.handler, methods=["HEAD"], include_in_schema=False)
    for path in PAGE_FILES if page else ():
        app.add_api_route(path, get_page_file, methods=["GET", "HEAD"], include_in_schema=False)


def _extra(declared: Route, path: str) -> dict[str, Any]:
    """What FastAPI does not know of a route."""
    # {} means no key: without keys in the settings, paths for API keys are open.
    with_key: list[dict[str, list[str]]] = [{name: []} for name in _SCHEMES]
    choices = {Access.OPEN: [], Access.KEY: [{}, *with_key], Access.ADMIN: with_key, Access.WRITE: with_key}
    extra: dict[str, Any] = {"security": choices[access_of(path, declared.method)]}
    if parameters := declared.parameters():
        extra["parameters"] = parameters
    if declared.answer:
        extra["responses"] = {"200": {"description": "Success.", "content": _json(declared.answer)}}
    if declared.body:
        content = _json(declared.body)
        if declared.example is not None:
            content["application/json"]["example"] = declared.example
        required = any(field.is_required() for field in declared.body.model_fields.values())
        extra["requestBody"] = {"required": required, "content": content}
    name = path.partition("{")[2].partition("}")[0].partition(":")[0]
    if name:
        parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        text = _PARAMETERS[path.removeprefix("/v1").partition("/{")[0]]
        extra["parameters"] = [{**parameter, "description": text}]
    return extra


def _json(shape: type[BaseModel] | type[Record]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=shape.__name__)}}}


def openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document; it is made once."""
    if app.openapi_schema is None:
        document = get_openapi(title="GLOW", version=__version__, routes=app.routes)
        document["components"] = {"schemas": _schemas(), "securitySchemes": _SCHEMES}
        document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
        app.openapi_schema = document
    return app.openapi_schema


def _schemas() -> dict[str, Any]:
    """Name -> schema, of every body and response. Responses have no other members, but clients must accept them."""
    bodies = dict.fromkeys(each.body for each in ROUTES if each.body)
    template = _REF.replace("{name}", "{model}")
    _, requests = models_json_schema([(body, "validation") for body in bodies], ref_template=template)
    answers = dict.fromkeys(each.answer for each in ROUTES if each.answer)
    _, responses = schema_components([*answers, Problem], ref_template=_REF)
    for name, schema in responses.items():
        schema["additionalProperties"] = name == IndexInfo.__name__
    return {**requests["$defs"], **responses}
