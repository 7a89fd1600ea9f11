"""`GET /documents/{id}`."""

from starlette.requests import Request
from starlette.responses import Response

from glow_service.api.context import context_of, leaving_cancels
from glow_service.api.responses import json_response
from glow_service.search import index_body, list_fields, shown_fields
from glow_service.state import service_of

__all__ = ["get_document"]


async def get_document(request: Request) -> Response:
    """The document of an id, from the live index."""
    service = service_of(request)
    index = service.resources.live()
    context = context_of(request.scope)
    context.index_version = index.version
    with leaving_cancels(context):
        document = await service.plain.pool.run_by(
            context.deadline, index.documents.get, request.path_params["id"]
        )
    schema = index.preprocessor.schema
    return json_response(
        {
            "id": document.id,
            "fields": shown_fields(document, schema.names, list_fields(schema)),
            "metadata": document.metadata,
            "index": index_body(index),
        }
    )
