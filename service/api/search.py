"""`POST /search`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from glow.search import Index
from service.api.body import read_object
from service.api.checks import CheckedSearch, check_search
from service.api.context import RequestContext, context_of
from service.api.documents import index_body, list_fields, shown_fields
from service.api.responses import json_response
from service.pipeline import SearchAnswer, StageClock, search
from service.state import service_of

__all__ = ["post_search"]


async def post_search(request: Request) -> Response:
    """Finds the documents that answer a query."""
    service = service_of(request)
    context = context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    body = await read_object(request, service.settings.max_body_bytes)
    checked = check_search(body, service.settings, index)
    answer = await service.pool.run(search, index, checked.call, StageClock())
    context.timings_ms = answer.timings_ms
    service.metrics.stages(answer.timings_ms)
    if answer.truncated:
        service.metrics.truncated.labels("query").inc()
    return json_response(_result(context, index, checked, answer))


def _result(
    context: RequestContext, index: Index, checked: CheckedSearch, answer: SearchAnswer
) -> dict[str, Any]:
    timings = {stage: round(value, 3) for stage, value in answer.timings_ms.items()}
    return {
        "request_id": context.request_id,
        "took_ms": round(context.took_ms(), 3),
        "degraded": [],
        "index": index_body(index),
        "query": {
            "text": checked.call.text,
            "tokens": answer.tokens,
            "truncated": answer.truncated,
            "terms": [
                {"word": term.word, "idf": round(term.idf, 4), "weight": round(term.weight, 4)}
                for term in answer.terms
            ],
        },
        "hits": _hits(index, checked, answer),
        "timings_ms": timings,
    }


def _hits(index: Index, checked: CheckedSearch, answer: SearchAnswer) -> list[dict[str, Any]]:
    lists = list_fields(index.preprocessor.schema)
    return [
        {
            "rank": rank,
            "id": hit.document.id,
            "score": (score := round(hit.score, 6)),
            "scores": {"dense": score},
            "fields": shown_fields(hit.document, checked.fields, lists),
            "metadata": hit.document.metadata,
        }
        for rank, hit in enumerate(answer.hits, start=checked.call.offset + 1)
    ]
