"""`GET /documents/{id}`, and the form in which documents are shown."""

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from glow.records import Document
from glow.schema import FieldSchema
from glow.search import Index
from glow_service.api.context import context_of, leaving_cancels
from glow_service.api.responses import json_response
from glow_service.state import service_of

__all__ = ["get_document", "index_body", "list_fields", "shown_fields"]


async def get_document(request: Request) -> Response:
    """The document of an id, from the live index."""
    service = service_of(request)
    index = service.resources.live()
    context = context_of(request.scope)
    context.index_version = index.version
    with leaving_cancels(context):
        document = await service.pool.run_by(context.deadline, index.documents.get, request.path_params["id"])
    schema = index.preprocessor.schema
    return json_response(
        {
            "id": document.id,
            "fields": shown_fields(document, schema.names, list_fields(schema)),
            "metadata": document.metadata,
            "index": index_body(index),
        }
    )


def index_body(index: Index) -> dict[str, str]:
    """Which index answered."""
    return {"version": index.version, "model": index.model}


def list_fields(schema: FieldSchema) -> frozenset[str]:
    """Names of the fields that are shown as lists whatever they hold: those with a limit on their values."""
    return frozenset(spec.name for spec in schema.fields if spec.max_values not in (None, 1))


def shown_fields(
    document: Document, names: Iterable[str], lists: frozenset[str]
) -> dict[str, str | tuple[str, ...]]:
    """A document's fields as an answer shows them; an empty one is left out.

    Args:
        document: as the store has it.
        names: which fields.
        lists: fields that are always lists; another is a string, or a list where it has several values.
    """
    shown: dict[str, Any] = {}
    for name in names:
        values = document.fields.get(name)
        if values:
            shown[name] = values if name in lists or len(values) > 1 else values[0]
    return shown
