"""HTTP: routes, request bodies, responses and problems."""

from glow_service.api import documents, embeddings, operations, search  # noqa: F401 - they declare the routes
from glow_service.api.context import SCOPE_KEY, RequestContext
from glow_service.api.middleware import RequestMiddleware
from glow_service.api.problems import problem_response
from glow_service.api.routes import add_routes

__all__ = [
    "SCOPE_KEY", "RequestContext", "RequestMiddleware", "add_routes", "problem_response",
]  # fmt: skip
