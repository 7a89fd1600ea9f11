"""The route `/suggest`: what a query may become, while it is typed."""

from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from glow.contract import Suggestion, SuggestResult
from glow.errors import QueryError
from glow.index.columns import COLUMNS
from glow.search import suggest
from glow_service import errors
from glow_service.api.answers import plan_of
from glow_service.api.context import context_of, head_of, json_response, leaving_cancels
from glow_service.api.routes import route
from glow_service.search import SearchRequest, Shape, index_name, parsed
from glow_service.search.request import members_of_address
from glow_service.state import service_of


class SuggestRequest(Shape):
    """The parameters of `GET /suggest`."""

    query: str
    top_k: int = Field(8, ge=1, le=20)


def _parameters() -> list[dict[str, Any]]:
    number = {"type": "integer", "minimum": 1, "maximum": 20, "default": 8}
    return [
        {
            "name": "q",
            "in": "query",
            "required": True,
            "schema": {"type": "string"},
            "description": "The text so far.",
        },
        {"name": "k", "in": "query", "schema": number, "description": "Most suggestions."},
    ]


@route(
    "GET",
    "/suggest",
    "/v1/suggest",
    errors=(
        errors.RequestError,
        QueryError,
        errors.QueryTooLongError,
        errors.NotAvailableError,
        errors.DeadlineError,
        errors.OverloadedError,
        errors.NotReadyError,
    ),
    answer=SuggestResult,
    tag="search",
    parameters=_parameters,
)
async def get_suggestions(request: Request) -> Response:
    """Suggests titles and phrases for the beginning of a query; its last word may be incomplete."""
    service, context = service_of(request), context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    asked = parsed(SuggestRequest, members_of_address(request.scope["query_string"]))
    with leaving_cancels(request):
        # As a search: the same bounds of a query, and the filter of the key.
        search = parsed(SearchRequest, {"query": asked.query, "retriever": "lexical"})
        plan = await plan_of(service, context, index, search)
        check = context.deadline.check

        def work() -> list[Suggestion]:
            masks = index[COLUMNS].masks
            allowed = None if plan.filter is None else masks.mask(plan.filter, check)
            found = suggest(index, plan.text, asked.top_k, allowed, check)
            return [Suggestion(each.text, each.kind, each.id) for each in found]

        suggestions = await service.pool.run(context.deadline, work)
    answer = {**head_of(context, service.request_ids), "index": index_name(index), "suggestions": suggestions}
    response = json_response(answer)
    response.headers["cache-control"] = "no-store"
    return response
