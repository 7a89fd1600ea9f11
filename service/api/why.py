"""The route `/explain`: why a search returns a document, or does not."""

import threading

import msgspec
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from glow.contract import DocumentExplanation, ExplainResult
from glow_service.access import require_visible
from glow_service.api.answers import plan_of
from glow_service.api.context import context_of, head_of, json_response, leaving_cancels
from glow_service.api.routes import BODY_ERRORS, route
from glow_service.api.search import SEARCH_ERRORS
from glow_service.search import Deadline, DocumentSearch, SearchRequest
from glow_service.state import service_of


class ExplainRequest(SearchRequest):
    """A search, and the document to explain; its hits, snippets and facets are not made."""

    id: str = Field(min_length=1, max_length=1_024, description="The document's id.")


@route(
    "POST",
    "/explain",
    "/v1/explain",
    errors=(*BODY_ERRORS, *SEARCH_ERRORS),
    answer=ExplainResult,
    body=ExplainRequest,
    tag="search",
    example={"id": "d42", "query": "how do bees find home"},
)
async def post_explain(request: Request, body: ExplainRequest) -> Response:
    """Says why a search returns a document, or does not."""
    service, context = service_of(request), context_of(request.scope)
    index, tenant, gone = service.resources.live(), context.tenant, threading.Event()
    context.index_version = index.version
    context.hold(service.pool.expensive)
    with leaving_cancels(request):
        plan = await plan_of(service, context, index, body)
        context.deadline = deadline = Deadline.after(context.started, plan.timeout_ms)

        def work() -> DocumentExplanation:
            require_visible(body.id, tenant, index, deadline.check)
            search = DocumentSearch(index, plan, body.id, body.filter, deadline)
            search.session.clock.gone = gone.is_set
            return search.run()

        try:
            found = await service.pool.run_expensive(deadline, work)
        finally:
            gone.set()
    return json_response({**head_of(context, service.request_ids), **msgspec.structs.asdict(found)})
