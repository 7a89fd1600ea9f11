"""The table of all routes, the search page, and the OpenAPI document."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from msgspec.json import schema_components
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from glow import __version__
from glow.contract import (
    AdminResult,
    BatchResult,
    DocumentResult,
    EmbeddingsResult,
    FeedbackResult,
    IndexInfo,
    Info,
    ModelsResult,
    OperationResult,
    Problem,
    Record,
    SearchResult,
)
from glow.errors import (
    BusyError,
    DiskError,
    DocumentNotFoundError,
    FilterError,
    GateError,
    GlowError,
    QueryError,
    ReadOnlyError,
)
from glow.ingest import LogFullError
from glow_service import errors
from glow_service.access import Access, access_errors, access_of
from glow_service.api.body import (
    BatchBody,
    DeleteBody,
    DocumentsBody,
    EmbeddingsBody,
    FeedbackBody,
    ReloadBody,
    RollbackBody,
)
from glow_service.api.context import json_response
from glow_service.api.documents import (
    delete_document,
    get_document,
    get_operation,
    post_delete,
    post_documents,
)
from glow_service.api.embeddings import get_models, post_embeddings
from glow_service.api.operations import (
    get_health,
    get_info,
    get_metrics,
    get_problem,
    get_ready,
    post_reload,
    post_rollback,
)
from glow_service.api.problems import responses_of
from glow_service.api.search import post_batch, post_feedback, post_search
from glow_service.search import SearchBody

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


# All routes: path, method, handler, and OpenAPI description.

Handler = Callable[[Request], Awaitable[Response]]
_REF = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Route:
    """One route."""

    paths: tuple[str, ...]  # the path and its aliases
    method: str  # GET (which also serves HEAD), POST or DELETE
    handler: Handler  # makes the response
    errors: Sequence[type[GlowError]] = ()  # the errors of its responses, except the internal one
    answer: type[Record] | None = None  # shape of its response, if documented
    body: type[BaseModel] | None = None  # shape of its request
    parameter: str = ""  # name of its path parameter
    tag: str = "operations"
    example: dict[str, Any] | None = None  # an example of its request's body


async def get_openapi_document(request: Request) -> Response:
    """The OpenAPI document of this API."""
    return json_response(openapi(request.app))


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
    bodies = [route.body for route in ROUTES if route.body]
    answers = [route.answer for route in ROUTES if route.answer]
    _, asked = models_json_schema([(body, "validation") for body in dict.fromkeys(bodies)], ref_template=_REF)
    _, answered = schema_components(
        [*dict.fromkeys(answers), Problem], ref_template=_REF.format(model="{name}")
    )
    for name, schema in answered.items():
        schema["additionalProperties"] = name == IndexInfo.__name__
    return {**asked["$defs"], **answered}


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
_SEARCH_EXAMPLE: dict[str, Any] = {
    "query": "how do bees find home",
    "top_k": 3,
    "fields": ["url", "title"],
    "highlight": True,
}

_BODY_ERRORS = (
    errors.MalformedJsonError,
    errors.BodyTooLargeError,
    errors.MediaTypeError,
    errors.DeadlineError,
    errors.RequestError,
)

_ADMIN_ERRORS = (*_BODY_ERRORS, errors.SwapRefusedError, errors.NotReadyError)

_WRITE_ERRORS = (
    *_BODY_ERRORS,
    errors.NotAvailableError,
    errors.OverloadedError,
    LogFullError,
    DiskError,
    ReadOnlyError,
    errors.NotReadyError,
)

ROUTES = (
    Route(
        ("/search", "/v1/search"),
        "POST",
        post_search,
        (
            *_BODY_ERRORS,
            DocumentNotFoundError,
            errors.AnswerTooLargeError,
            QueryError,
            FilterError,
            errors.QueryTooLongError,
            errors.NotAvailableError,
            errors.OverloadedError,
            errors.NotReadyError,
        ),
        answer=SearchResult,
        body=SearchBody,
        tag="search",
        example=_SEARCH_EXAMPLE,
    ),
    Route(
        ("/search/batch", "/v1/search/batch"),
        "POST",
        post_batch,
        (*_BODY_ERRORS, errors.OverloadedError, errors.NotReadyError),
        answer=BatchResult,
        body=BatchBody,
        tag="search",
        example={"searches": [_SEARCH_EXAMPLE, {"query": "why do salmon swim upriver"}]},
    ),
    Route(
        ("/feedback", "/v1/feedback"),
        "POST",
        post_feedback,
        (*_BODY_ERRORS, errors.RequestIdError, errors.RouteNotFoundError),
        answer=FeedbackResult,
        body=FeedbackBody,
        tag="search",
        example={"request_id": "7cd5284e524b6bde", "id": "d42", "kind": "click", "rank": 1},
    ),
    Route(
        ("/v1/embeddings",),
        "POST",
        post_embeddings,
        (*_BODY_ERRORS, errors.NotAvailableError, errors.OverloadedError, errors.NotReadyError),
        answer=EmbeddingsResult,
        body=EmbeddingsBody,
        tag="embeddings",
        example={"input": ["how do bees find home"], "input_type": "query"},
    ),
    Route(("/v1/models",), "GET", get_models, (errors.NotReadyError,), answer=ModelsResult, tag="embeddings"),
    Route(
        ("/documents/{id:path}", "/v1/documents/{id:path}"),
        "GET",
        get_document,
        (DocumentNotFoundError, errors.OverloadedError, errors.DeadlineError, errors.NotReadyError),
        answer=DocumentResult,
        parameter="id",
        tag="documents",
    ),
    Route(
        ("/documents", "/v1/documents"),
        "POST",
        post_documents,
        _WRITE_ERRORS,
        answer=OperationResult,
        body=DocumentsBody,
        tag="documents",
        example={"documents": [{"_id": "d42", "title": "Bees", "text": "How bees find home."}]},
    ),
    Route(
        ("/documents/delete", "/v1/documents/delete"),
        "POST",
        post_delete,
        (*_WRITE_ERRORS, FilterError),
        answer=OperationResult,
        body=DeleteBody,
        tag="documents",
        example={"ids": ["d42"]},
    ),
    Route(
        ("/documents/{id:path}", "/v1/documents/{id:path}"),
        "DELETE",
        delete_document,
        _WRITE_ERRORS,
        answer=OperationResult,
        parameter="id",
        tag="documents",
    ),
    Route(
        ("/operations/{id}", "/v1/operations/{id}"),
        "GET",
        get_operation,
        (QueryError, errors.NotReadyError),
        answer=OperationResult,
        parameter="id",
        tag="documents",
    ),
    Route(("/healthz",), "GET", get_health),
    Route(("/readyz",), "GET", get_ready, (errors.NotReadyError, errors.DrainingError)),
    Route(("/metrics",), "GET", get_metrics),
    Route(("/info",), "GET", get_info, (errors.NotReadyError,), answer=Info),
    Route(
        ("/admin/reload",),
        "POST",
        post_reload,
        _ADMIN_ERRORS,
        answer=AdminResult,
        body=ReloadBody,
        tag="admin",
    ),
    Route(
        ("/admin/rollback",),
        "POST",
        post_rollback,
        (*_ADMIN_ERRORS, GateError, BusyError, ReadOnlyError, DiskError),
        answer=AdminResult,
        body=RollbackBody,
        tag="admin",
    ),
    Route(("/problems/{code}",), "GET", get_problem, (errors.RouteNotFoundError,), parameter="code"),
    Route(("/openapi.json",), "GET", get_openapi_document),
)


class PlainRoute(APIRoute):
    """A route whose handler reads the request itself; FastAPI only documents it.

    Its pattern matches the whole path: Starlette's ignores a line feed at the end, and does not match one inside an id.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The plain handler, without FastAPI's parsing of bodies and parameters."""
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def add_routes(app: FastAPI, *, page: bool) -> None:
    """Adds every route to the app, and the search page if `page`."""
    app.router.route_class = PlainRoute
    for route in ROUTES:
        for path in route.paths:
            app.add_api_route(
                path,
                route.handler,
                methods=[route.method],
                response_class=Response,
                responses=responses_of((*route.errors, *access_errors(path, route.method), GlowError)),
                openapi_extra=_extra(route, path),
                summary=(route.handler.__doc__ or "").rstrip("."),
                tags=[route.tag],
                operation_id=route.handler.__name__ + ("_v1" if path.startswith("/v1/") else ""),
            )
            if route.method == "GET":
                app.add_api_route(path, route.handler, methods=["HEAD"], include_in_schema=False)
    for path in PAGE_FILES if page else ():
        app.add_api_route(path, page_route(path), methods=["GET", "HEAD"], include_in_schema=False)


def _extra(route: Route, path: str) -> dict[str, Any]:
    # {} means no key: without keys in the settings, paths for API keys are open.
    with_key: list[dict[str, list[str]]] = [{name: []} for name in _SCHEMES]
    choices = {Access.OPEN: [], Access.KEY: [{}, *with_key], Access.ADMIN: with_key, Access.WRITE: with_key}
    extra: dict[str, Any] = {"security": choices[access_of(path, route.method)]}
    if route.answer:
        extra["responses"] = {"200": {"description": "Success.", "content": _json(route.answer)}}
    if route.body:
        required = any(field.is_required() for field in route.body.model_fields.values())
        content = _json(route.body)
        if route.example is not None:
            content["application/json"]["example"] = route.example
        extra["requestBody"] = {"required": required, "content": content}
    if route.parameter:
        parameter = {"name": route.parameter, "in": "path", "required": True, "schema": {"type": "string"}}
        text = _PARAMETERS[path.removeprefix("/v1").partition("/{")[0]]
        extra["parameters"] = [{**parameter, "description": text}]
    return extra


def _json(shape: type[BaseModel] | type[Record]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=shape.__name__)}}}
