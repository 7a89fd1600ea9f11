"""Documents by id, all documents, and writes: the routes `/documents`, `/documents/{id}`, `/documents/delete` and `/operations/{id}`.

The response to a write means that it is stored in the write log on disk; `glow ingest` applies it. With
`?wait=visible` the response waits until every worker of this service serves it.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from glow.collection import RecordKeys
from glow.contract import DocumentResult, DocumentsResult, ListedDocument, OperationResult, encode
from glow.errors import DiskError, DocumentNotFoundError, FilterError, QueryError, ReadOnlyError
from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.columns.filters import parse_filter, restricts_nothing
from glow.index.stored_fields import STORED_FIELDS, parse_document
from glow.ingest import Kind, LogFullError, OperationId, parse_operation_id
from glow.records import Document
from glow_service import errors
from glow_service.access import require_visible
from glow_service.api.body import (
    DeleteRequest,
    DocumentsRequest,
    ListRequest,
    PatchRequest,
    read_bytes,
    read_json,
    read_object,
)
from glow_service.api.context import context_of, json_answer, json_response, leaving_cancels, live_of
from glow_service.api.routes import BODY_ERRORS, route
from glow_service.errors import RequestError
from glow_service.search.clock import Deadline
from glow_service.search.plan import MAX_ANSWER_BYTES, MAX_FILTER_TERMS
from glow_service.search.render import index_name, list_fields, shown_fields
from glow_service.search.request import fault, members_of_address, parameters_of, parsed
from glow_service.state import Service, service_of
from glow_service.writes import (
    AcceptedDocuments,
    OperationState,
    documents_of,
    lines_of,
    read_documents,
    read_ids,
    read_patch,
)

EVERY: dict[str, Any] = {"and": []}
"""The filter that matches every document."""
LINES, MERGE_PATCH = "application/x-ndjson", "application/merge-patch+json"
WAIT_S, MOST_WAIT_S = 30.0, 600.0
"""Default and largest `wait_s` of `wait=visible`, in seconds."""
READ_S = 60.0
"""Time limit for the body of a write, in seconds."""
SHOWN_REJECTS = 100
READ_AT_ONCE = 64
"""Documents that are read together."""


@route(
    "GET",
    "/documents",
    errors=(
        errors.RequestError,
        FilterError,
        errors.OverloadedError,
        errors.DeadlineError,
        errors.NotReadyError,
    ),
    answer=DocumentsResult,
    tag="documents",
    parameters=lambda: parameters_of(ListRequest),
)
async def get_documents(request: Request) -> Response:
    """Lists all documents of the live index by id, a page at a time."""
    service, context, index = live_of(request)
    context.hold(service.pool.expensive)
    page = parsed(ListRequest, members_of_address(request.scope["query_string"]))
    tenant = None if context.tenant is None else context.tenant.filter
    filters = [each for each in (tenant, page.filter) if each is not None]
    deadline = context.deadline
    with leaving_cancels(request):
        body = await service.pool.run_expensive(deadline, _page, index, page, filters, deadline.check)
    return json_answer(body)


def _page(
    index: Index, page: ListRequest, filters: Sequence[dict[str, Any]], check: Callable[[], None]
) -> bytes:
    schema = index.preprocessor.schema
    lists, listed, size, last = list_fields(schema), list[ListedDocument](), 0, None
    for document in _after(index, page, filters, check):
        check()
        if len(listed) == page.limit or size > MAX_ANSWER_BYTES:
            last = listed[-1].id
            break
        fields = shown_fields(document, schema.names, lists)
        listed.append(ListedDocument(document.id, fields, document.metadata))
        size += len(encode(listed[-1]))
    return encode(DocumentsResult(tuple(listed), index_name(index), last))


def _after(
    index: Index, page: ListRequest, filters: Sequence[dict[str, Any]], check: Callable[[], None]
) -> Iterator[Document]:
    """The documents after an id that match every filter, by id."""
    stored, metadata = index[STORED_FIELDS], index[COLUMNS]
    rest = stored.by_id(page.after)
    if not filters:
        yield from (parse_document((name, fields, more)) for name, _, fields, more in rest)
        return
    condition = filters[0] if len(filters) == 1 else {"and": [*filters]}
    expression = parse_filter(condition, metadata.columns, MAX_FILTER_TERMS)
    first = next(rest, None)
    if first is None:
        return
    rows = metadata.masks.mask(expression, check).rows
    rows = rows[metadata.columns.order[rows] >= metadata.columns.order[first[1]]]
    if len(rows) > page.limit + 1:
        rows = rows[np.argpartition(metadata.columns.order[rows], page.limit)[: page.limit + 1]]
    rows = rows[np.argsort(metadata.columns.order[rows])]
    for start in range(0, len(rows), READ_AT_ONCE):
        yield from stored.rows(rows[start : start + READ_AT_ONCE].tolist())


@route(
    "GET",
    "/documents/{id:path}",
    errors=(DocumentNotFoundError, errors.OverloadedError, errors.DeadlineError, errors.NotReadyError),
    answer=DocumentResult,
    tag="documents",
)
async def get_document(request: Request) -> Response:
    """Returns a document of the live index by id."""
    service, context, index = live_of(request)
    deadline, identifier = context.deadline, request.path_params["id"]
    with leaving_cancels(request):
        if context.tenant is not None:
            tenant = context.tenant
            await service.pool.run(deadline, require_visible, identifier, tenant, index, deadline.check)
        document = await service.pool.run(deadline, index[STORED_FIELDS].get, identifier)
    schema = index.preprocessor.schema
    fields = shown_fields(document, schema.names, list_fields(schema))
    return json_response(DocumentResult(document.id, fields, document.metadata, index_name(index)))


_WRITE_ERRORS = (
    *BODY_ERRORS,
    errors.NotAvailableError,
    errors.OverloadedError,
    LogFullError,
    DiskError,
    ReadOnlyError,
    errors.NotReadyError,
)


@route(
    "POST",
    "/documents",
    errors=_WRITE_ERRORS,
    answer=OperationResult,
    body=DocumentsRequest,
    tag="documents",
    example={"documents": [{"_id": "d42", "title": "Bees", "text": "How bees find home."}]},
)
async def post_documents(request: Request) -> Response:
    """Adds documents, or replaces those with the same ids."""
    service = service_of(request)
    index, deadline = _begin(service, request), _read_by(request)
    names, recorded = index.preprocessor.schema.names, index.manifest.parameters
    keys = RecordKeys(id_field=recorded.get("id_field"), generate_ids=recorded.get("generate_ids", False))
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == LINES:
        lines = lines_of(await read_bytes(request, service.settings.max_write_bytes, deadline))
    else:
        lines = documents_of(await read_json(request, service.settings.max_write_bytes, deadline))
    taken = await asyncio.to_thread(read_documents, lines, names, keys)
    return await _write(service, request, "upsert", taken, documents=taken.documents)


@route(
    "PATCH",
    "/documents/{id:path}",
    errors=_WRITE_ERRORS,
    answer=OperationResult,
    body=PatchRequest,
    tag="documents",
    example={"price": 24.9, "discount": None},
)
async def patch_document(request: Request) -> Response:
    """Changes metadata of a document, which is not encoded again; an unknown id is not an error."""
    service = service_of(request)
    index, identifier = _begin(service, request), request.path_params["id"]
    data = await read_json(request, service.settings.max_write_bytes, _read_by(request), MERGE_PATCH)
    names, recorded = index.preprocessor.schema.names, index.manifest.parameters
    metadata = await asyncio.to_thread(read_patch, identifier, data, names, recorded)
    return await _write(service, request, "patch", None, id=identifier, metadata=metadata)


@route("DELETE", "/documents/{id:path}", errors=_WRITE_ERRORS, answer=OperationResult, tag="documents")
async def delete_document(request: Request) -> Response:
    """Deletes a document by id; an unknown id is not an error."""
    service = service_of(request)
    _begin(service, request)
    ids = read_ids({"ids": [request.path_params["id"]]})
    return await _write(service, request, "delete", None, ids=ids)


@route(
    "POST",
    "/documents/delete",
    errors=(*_WRITE_ERRORS, FilterError),
    answer=OperationResult,
    body=DeleteRequest,
    tag="documents",
    example={"ids": ["d42"]},
)
async def post_delete(request: Request) -> Response:
    """Deletes documents by ids or by a filter, or all documents."""
    service = service_of(request)
    index = _begin(service, request)
    body = await read_object(request, service.settings.max_write_bytes, _read_by(request))
    if body.keys() == {"ids"}:
        return await _write(service, request, "delete", None, ids=read_ids(body))
    if not body or not body.keys() <= {"filter", "all"} or not isinstance(body.get("all", True), bool):
        detail = "expected only 'ids', 'filter' or 'all': true ('filter' and 'all' can be combined)"
        raise fault("", detail)
    means_all, condition = body.get("all", False), body.get("filter", EVERY)
    expression = parse_filter(condition, index[COLUMNS].columns, MAX_FILTER_TERMS)
    if not means_all and restricts_nothing(expression):
        raise fault("/filter", 'the filter matches every document; to delete all of them, add "all": true')
    return await _write(service, request, "delete_by_filter", None, filter=condition, all=means_all)


@route(
    "GET",
    "/operations/{id}",
    errors=(QueryError, errors.NotReadyError),
    answer=OperationResult,
    tag="documents",
)
async def get_operation(request: Request) -> Response:
    """Returns the state of a write."""
    service = service_of(request)
    operation = parse_operation_id(request.path_params["id"])
    return json_response(_result(operation, await service.follower.look(operation)))


async def _write(
    service: Service, request: Request, kind: Kind, taken: AcceptedDocuments | None, **content: Any
) -> Response:
    wait_s, context = _wait_s(request), context_of(request.scope)
    append = partial(service.ingest.append, kind, **content)
    with service.follower.place() if wait_s else nullcontext():
        operation = await service.pool.run_expensive(_read_by(request), append)
        context.release()  # waiting needs no slot
        state = OperationState("waiting")
        if wait_s:
            with leaving_cancels(request):
                state = await service.follower.wait(operation, wait_s)
    return json_response(_result(operation, state, taken), 200 if state.is_final else 202)


def _result(
    operation: OperationId, state: OperationState, taken: AcceptedDocuments | None = None
) -> OperationResult:
    return OperationResult(
        operation=str(operation),
        state=state.state,
        version=state.version,
        previous=state.before,
        counts=state.counts,
        reason=state.reason,
        accepted=None if taken is None else len(taken.documents),
        rejected=None if taken is None else len(taken.rejects),
        rejects=None if taken is None else tuple(taken.rejects[:SHOWN_REJECTS]),
    )


def _begin(service: Service, request: Request) -> Index:
    """Takes a slot of expensive requests, so that writes do not delay searches, and returns the live index."""
    index = service.resources.live()
    context_of(request.scope).hold(service.pool.expensive)
    return index


def _read_by(request: Request) -> Deadline:
    return Deadline.after(context_of(request.scope).started, READ_S * 1_000)


def _wait_s(request: Request) -> float:
    """How long the client wants to wait, in seconds; 0: it does not wait."""
    wait = request.query_params.get("wait")
    if wait is None:
        return 0.0
    if wait != "visible":
        raise RequestError(f"wait={wait!r:.40}: expected 'visible', or no parameter")
    text = request.query_params.get("wait_s", str(WAIT_S))
    try:
        seconds = float(text)
    except ValueError as error:
        raise RequestError(f"wait_s={text!r:.40}: expected seconds") from error
    if not 0.0 < seconds <= MOST_WAIT_S:
        raise RequestError(f"wait_s={text!r:.40}: expected more than 0 and at most {MOST_WAIT_S:g} seconds")
    return seconds
