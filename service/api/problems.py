"""Errors as RFC 9457 problems: a table from exception to status and title; `code` comes from the exception.

`docs/reference/errors.md` documents every row, and `GET /problems/{code}` returns one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from glow import errors as glow_errors
from glow.contract import InvalidValue, Problem, encode
from glow.errors import Fault, FilterError, GlowError, QueryError
from glow.ingest import LogBusyError, LogFullError
from glow_service import errors
from glow_service.errors import RequestError

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
HIDDEN = "unexpected error; see the log entry with this request id"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One row of the table."""

    status: int
    title: str  # summary, the same for every occurrence


PROBLEMS: dict[type[GlowError], ProblemKind] = {
    # Errors of requests.
    errors.MalformedJsonError: ProblemKind(400, "The body is not JSON"),
    errors.RouteNotFoundError: ProblemKind(404, "Path not found"),
    glow_errors.DocumentNotFoundError: ProblemKind(404, "Document not found"),
    errors.KeyMissingError: ProblemKind(401, "API key required"),
    errors.KeyRefusedError: ProblemKind(403, "API key not accepted"),
    errors.MethodNotAllowedError: ProblemKind(405, "Method not allowed"),
    errors.BodyTooLargeError: ProblemKind(413, "The body is too large"),
    errors.MediaTypeError: ProblemKind(415, "Unsupported media type"),
    errors.RequestError: ProblemKind(422, "The request is not valid"),
    glow_errors.QueryError: ProblemKind(422, "The query is not valid"),
    FilterError: ProblemKind(422, "The filter or facet is not valid"),
    errors.QueryTooLongError: ProblemKind(422, "The query is too long"),
    errors.AnswerTooLargeError: ProblemKind(422, "The response is too large"),
    errors.RequestIdError: ProblemKind(422, "Unknown request id"),
    errors.NotAvailableError: ProblemKind(422, "Feature not available"),
    glow_errors.InputError: ProblemKind(422, "The input is not valid"),
    glow_errors.RecordError: ProblemKind(422, "The record is not valid"),
    errors.RateLimitError: ProblemKind(429, "Rate limit exceeded"),
    errors.OverloadedError: ProblemKind(429, "Too many requests"),
    errors.SwapRefusedError: ProblemKind(409, "The index version was refused"),
    LogFullError: ProblemKind(429, "Too many pending writes"),
    errors.DeadlineError: ProblemKind(504, "Deadline exceeded"),
    glow_errors.GlowError: ProblemKind(500, "Internal error"),
    LogBusyError: ProblemKind(503, "The write log is locked"),
    errors.NotReadyError: ProblemKind(503, "Not ready yet"),
    errors.DrainingError: ProblemKind(503, "Shutting down"),
    # Errors of a start, a build or an export; in a response, they are errors of the server.
    glow_errors.MismatchError: ProblemKind(409, "The artifacts do not match"),
    glow_errors.ArtifactError: ProblemKind(503, "The artifact cannot be used"),
    glow_errors.ArtifactNotFoundError: ProblemKind(503, "Artifact not found"),
    glow_errors.FormatError: ProblemKind(503, "The artifact cannot be read"),
    glow_errors.IntegrityError: ProblemKind(503, "The artifact is damaged"),
    glow_errors.DeviceError: ProblemKind(503, "Device not available"),
    glow_errors.DependencyError: ProblemKind(503, "Missing optional package"),
    glow_errors.ConfigError: ProblemKind(500, "The configuration is not valid"),
    glow_errors.BuildError: ProblemKind(500, "The build failed"),
    glow_errors.GateError: ProblemKind(409, "The gate refused the version"),
    glow_errors.BusyError: ProblemKind(409, "The index root is locked by another process"),
    glow_errors.ReadOnlyError: ProblemKind(409, "The index root cannot be written"),
    glow_errors.StoreError: ProblemKind(503, "Vector store not available"),
    glow_errors.DiskError: ProblemKind(507, "The disk is full or failing"),
    glow_errors.ExportError: ProblemKind(500, "The export was refused"),
}


def problem_of(kind: type[GlowError]) -> ProblemKind:
    """The problem of an error class, or of its nearest base class in the table."""
    return next(PROBLEMS[base] for base in kind.__mro__ if base in PROBLEMS)


def problem_type(code: str) -> str:
    """URI of a problem type, relative to the service; `GET` returns its meaning."""
    return f"/problems/{code}"


def problem_response(
    error: BaseException, *, request_id: str, instance: str, headers: dict[str, str] | None = None
) -> Response:
    """Converts an exception to a problem response; details of unexpected exceptions are hidden."""
    known = error if isinstance(error, GlowError) else GlowError()
    problem = problem_of(type(known))
    more: dict[str, str] = {}
    if problem.status == 401:
        more = {"WWW-Authenticate": 'Bearer realm="glow"'}
    elif problem.status in (429, 503):
        more = {"Retry-After": str(getattr(known, "retry_after_s", RETRY_AFTER_S))}
    body = encode(problem_body(known, request_id=request_id, instance=instance))
    return Response(body, problem.status, {**more, **(headers or {})}, MEDIA_TYPE)


def problem_body(error: GlowError, *, request_id: str, instance: str) -> Problem:
    """The body of a problem response; same arguments as `problem_response`."""
    problem = problem_of(type(error))
    # Only the operator, not a client, may see errors of the server's files.
    is_hidden = problem.status == 500 or isinstance(
        error, glow_errors.FormatError | glow_errors.IntegrityError
    )
    return Problem(
        type=problem_type(error.code),
        title=problem.title,
        status=problem.status,
        detail=HIDDEN if is_hidden else str(error),
        instance=instance,
        code=error.code,
        request_id=request_id,
        errors=tuple(InvalidValue(fault.pointer, fault.detail) for fault in _faults(error)),
    )


def responses_of(kinds: Sequence[type[GlowError]]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI `responses` of a route with these errors."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in sorted({problem_of(kind).status for kind in kinds}):
        codes = ", ".join(kind.code for kind in kinds if problem_of(kind).status == status)
        responses[status] = {"description": f"{MEDIA_TYPE} with code {codes}", "content": content}
    return responses


def _faults(error: GlowError) -> Sequence[Fault]:
    if isinstance(error, RequestError | FilterError):
        return error.faults
    return (Fault("/query", str(error)),) if isinstance(error, QueryError) else ()
