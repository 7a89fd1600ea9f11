"""Errors as RFC 9457 problems: a table from exception to status and title. `code` comes from the exception.

`docs/reference/errors.md` documents every row, and `GET /problems/{code}` returns one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from glow import errors as glow_errors
from glow.errors import FilterError, GlowError, QueryError
from glow.ingest import LogBusyError, LogFullError
from glow_service import errors
from glow_service.api.responses import json_bytes
from glow_service.errors import Fault, RequestError

__all__ = [
    "PROBLEMS", "Problem", "problem_body", "problem_of", "problem_response", "problem_type", "responses_of",
]  # fmt: skip

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
HIDDEN = "an unexpected error; the log holds it under this request id"


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of the table.

    Attributes:
        status: HTTP status.
        title: the same for every occurrence.
    """

    status: int
    title: str


PROBLEMS: dict[type[GlowError], Problem] = {
    # What a client can meet.
    errors.MalformedHttpError: Problem(400, "Not an HTTP request"),
    errors.MalformedJsonError: Problem(400, "The body is not JSON"),
    errors.RouteNotFoundError: Problem(404, "No such path"),
    glow_errors.DocumentNotFoundError: Problem(404, "No such document"),
    errors.KeyMissingError: Problem(401, "A key is needed"),
    errors.AccessError: Problem(403, "Not allowed"),
    errors.KeyRefusedError: Problem(403, "The key is not known"),
    errors.MethodNotAllowedError: Problem(405, "The path does not know this method"),
    errors.BodyTooLargeError: Problem(413, "The body is too large"),
    errors.HeadersTooLateError: Problem(408, "The headers took too long"),
    errors.MediaTypeError: Problem(415, "The body is not declared as JSON"),
    errors.HeadersTooLargeError: Problem(431, "The headers are too large"),
    errors.RequestError: Problem(422, "The request is not valid"),
    glow_errors.QueryError: Problem(422, "The query cannot be searched"),
    FilterError: Problem(422, "The filter does not fit the index"),
    errors.QueryTooLongError: Problem(422, "The query is too long"),
    errors.AnswerTooLargeError: Problem(422, "The answer is too large"),
    errors.RequestIdError: Problem(422, "The search is not known"),
    errors.NotAvailableError: Problem(422, "Not available here"),
    glow_errors.InputError: Problem(422, "The input is not valid"),
    glow_errors.RecordError: Problem(422, "The record is not valid"),
    errors.RateLimitError: Problem(429, "Too many requests of this key"),
    errors.OverloadedError: Problem(429, "Too many requests"),
    errors.SwapRefusedError: Problem(409, "The index version was refused"),
    LogFullError: Problem(429, "Too many writes wait"),
    errors.DeadlineError: Problem(504, "The deadline passed"),
    glow_errors.GlowError: Problem(500, "Internal error"),
    LogBusyError: Problem(503, "The log of writes is locked"),
    errors.UnavailableError: Problem(503, "Unavailable for now"),
    errors.NotReadyError: Problem(503, "Not ready yet"),
    errors.DrainingError: Problem(503, "About to stop"),
    # What stops a start, a build or an export; as an answer each of them is a fault on our side.
    glow_errors.MismatchError: Problem(409, "Artifacts do not belong together"),
    glow_errors.ArtifactError: Problem(503, "The artifact cannot be used"),
    glow_errors.ArtifactNotFoundError: Problem(503, "No artifact where one was expected"),
    glow_errors.FormatError: Problem(503, "The artifact cannot be read"),
    glow_errors.IntegrityError: Problem(503, "The artifact is damaged"),
    glow_errors.DeviceError: Problem(503, "The device is not there"),
    glow_errors.DependencyError: Problem(503, "A package is not installed"),
    glow_errors.ConfigError: Problem(500, "The configuration is not valid"),
    glow_errors.BuildError: Problem(500, "The build failed"),
    glow_errors.GateError: Problem(409, "The version is not good enough to be published"),
    glow_errors.BusyError: Problem(409, "The index root is being changed"),
    glow_errors.ReadOnlyError: Problem(409, "The index root cannot be written"),
    glow_errors.StoreError: Problem(503, "The vectors cannot be searched now"),
    glow_errors.DiskError: Problem(507, "The disk is full or fails"),
    glow_errors.ExportError: Problem(500, "The export was refused"),
}


def problem_of(kind: type[GlowError]) -> Problem:
    """The row of an error, or of its nearest base class that has one."""
    return next(PROBLEMS[base] for base in kind.__mro__ if base in PROBLEMS)


def problem_type(code: str) -> str:
    """URI of a problem type, relative to the service. `GET` returns the problem's meaning."""
    return f"/problems/{code}"


def problem_response(
    error: BaseException, *, request_id: str, instance: str, headers: dict[str, str] | None = None
) -> Response:
    """Turns an exception into a problem; details of unexpected exceptions are hidden.

    Args:
        error: what was raised.
        request_id: also in the logs.
        instance: path of the request.
        headers: headers to add, such as `Allow`.
    """
    known = error if isinstance(error, GlowError) else GlowError()
    problem = problem_of(type(known))
    body = json_bytes(problem_body(known, request_id=request_id, instance=instance))
    return Response(body, problem.status, {**_headers(known, problem), **(headers or {})}, MEDIA_TYPE)


def problem_body(error: GlowError, *, request_id: str, instance: str) -> dict[str, Any]:
    """A problem's members; arguments as for `problem_response`."""
    problem = problem_of(type(error))
    # What is wrong with the server's own files is the operator's to know, not a client's.
    is_hidden = problem.status == 500 or isinstance(
        error, glow_errors.FormatError | glow_errors.IntegrityError
    )
    return {
        "type": problem_type(error.code),
        "title": problem.title,
        "status": problem.status,
        "detail": HIDDEN if is_hidden else str(error),
        "instance": instance,
        "code": error.code,
        "request_id": request_id,
        "errors": [{"pointer": fault.pointer, "detail": fault.detail} for fault in _faults(error)],
    }


def _headers(error: GlowError, problem: Problem) -> dict[str, str]:
    if problem.status == 401:
        return {"WWW-Authenticate": 'Bearer realm="glow"'}
    if problem.status in (429, 503):
        return {"Retry-After": str(getattr(error, "retry_after_s", RETRY_AFTER_S))}
    return {}


def responses_of(kinds: Sequence[type[GlowError]]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's `responses` of a route with these errors."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status, codes in _by_status(kinds):
        responses[status] = {
            "description": f"{MEDIA_TYPE} with code {', '.join(codes)}",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        }
    return responses


def _by_status(kinds: Sequence[type[GlowError]]) -> Iterator[tuple[int, list[str]]]:
    for status in sorted({problem_of(kind).status for kind in kinds}):
        yield status, [kind.code for kind in kinds if problem_of(kind).status == status]


def _faults(error: GlowError) -> Sequence[Fault]:
    if isinstance(error, RequestError | FilterError):
        return error.faults
    if isinstance(error, QueryError):
        return (Fault("/query", str(error)),)
    return ()
