"""The state of a request in work, and JSON responses."""

import asyncio
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from glow.contract import encode
from glow.index import Index
from glow_service.access import RequestIds, Tenant
from glow_service.search.clock import NEVER, Deadline
from glow_service.search.pool import Admission
from glow_service.state import Service, service_of


def json_answer(body: bytes) -> Response:
    """An `application/json` response of encoded bytes."""
    return Response(body, media_type="application/json")


def json_response(value: Any, status: int = 200) -> Response:
    """An `application/json` response."""
    return Response(encode(value), status, media_type="application/json")


SCOPE_KEY = "glow.context"
_WELL_FORMED_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


@dataclass(slots=True)
class RequestContext:
    """The state of a request in work."""

    request_id: str  # the client's id if well-formed, otherwise a new one
    started: float = field(default_factory=time.perf_counter)  # `time.perf_counter()` at its first byte
    timings_ms: dict[str, float] = field(
        default_factory=dict
    )  # stages, for `Server-Timing` and the histograms
    index_version: str = ""  # version of the searched index; "" if there is none
    deadline: Deadline = NEVER  # deadline of the response
    left: bool = False  # whether the client disconnected before the response
    held: list[Admission] = field(default_factory=list)  # where it holds a slot
    key: str = ""  # name of the request's API key; "" if there is none
    tenant: Tenant | None = None  # restriction of that key to some documents; None: all
    status: int = 499  # HTTP status of the response; 499 (as in nginx) until there is one
    code: str = ""  # code of the problem; "" if there is none
    is_late: bool = False  # whether a missed deadline of it was counted

    def hold(self, admission: Admission) -> None:
        """Takes a slot, or raises; the middleware releases it at the end of the request."""
        admission.enter()
        self.held.append(admission)

    def release(self) -> None:
        """Releases the slots that it holds."""
        while self.held:
            self.held.pop().leave()

    def took_ms(self) -> float:
        """Milliseconds since the request started."""
        return (time.perf_counter() - self.started) * 1_000


WATCHED_AFTER_S = 0.05
"""Shorter requests are not watched: a task for each would cost more than the rest of an unwanted search."""


@contextmanager
def leaving_cancels(request: Request) -> Iterator[None]:
    """Cancels the request's task if the client disconnects during the block; its body must have been read."""
    task, watches = asyncio.current_task(), list[asyncio.Task[None]]()

    def watch() -> None:
        watches.append(asyncio.create_task(_cancel_when_left(request, task)))

    alarm = asyncio.get_running_loop().call_later(WATCHED_AFTER_S, watch)
    try:
        yield
    finally:
        alarm.cancel()
        for each in watches:
            each.cancel()


async def _cancel_when_left(request: Request, task: asyncio.Task[Any] | None) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    context_of(request.scope).left = True
    if task is not None:
        task.cancel()


def new_context(scope: Scope) -> RequestContext:
    """Makes the context of a request and attaches it."""
    sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    is_well_formed = _WELL_FORMED_ID.fullmatch(sent) is not None
    # A name and no secret: it is signed where that matters, and the system's generator is a call to the kernel.
    identifier = sent.decode() if is_well_formed else f"{random.getrandbits(64):016x}"
    context = RequestContext(identifier)
    scope[SCOPE_KEY] = context
    return context


def head_of(context: RequestContext, ids: RequestIds) -> dict[str, Any]:
    """The first members of a search response: the signed request id, and the time so far."""
    return {"request_id": ids.signed(context.request_id), "took_ms": round(context.took_ms(), 3)}


def context_of(scope: Scope) -> RequestContext:
    """The context of a request."""
    context: RequestContext = scope[SCOPE_KEY]
    return context


def live_of(request: Request) -> tuple[Service, RequestContext, Index]:
    """The service, the context of a request, and the live index, which the response's headers then name."""
    service, context = service_of(request), context_of(request.scope)
    index = service.resources.live()
    context.index_version = index.version
    return service, context, index
