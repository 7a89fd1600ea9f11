"""What is known of a request beside its content; one object goes with it from the first byte to the log line."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

from glow_service.access import RequestIds, Tenant
from glow_service.search import NEVER, Admission, Deadline

__all__ = ["SCOPE_KEY", "RequestContext", "context_of", "head_of", "leaving_cancels", "new_context"]

SCOPE_KEY = "glow.context"
_WELL_FORMED_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


def _nothing_held() -> None:
    """A request that holds no permit gives none back."""


@dataclass(slots=True)
class RequestContext:
    """A request while it is being answered.

    Attributes:
        request_id: the client's own if well-formed, else a new one.
        started: `time.perf_counter()` at its first byte.
        timings_ms: stages of a search, for `Server-Timing` and the histograms.
        index_version: of the index that answers, "" where none does.
        deadline: by which it must be answered.
        on_disconnect: called when the client leaves.
        left: whether the client left before the answer.
        release: gives back the permits that it holds.
        key: name of the API key that it came with, "" where there is none.
        tenant: which documents that key opens; None: all.
        status: HTTP status of the answer; 499 (nginx's number) while there is none.
        code: code of the problem, "" where there is none.
        is_late: whether it was counted as one that missed its deadline.
    """

    request_id: str
    started: float = field(default_factory=time.perf_counter)
    timings_ms: dict[str, float] = field(default_factory=dict)
    index_version: str = ""
    deadline: Deadline = NEVER
    on_disconnect: Callable[[], object] | None = None
    left: bool = False
    release: Callable[[], None] = _nothing_held
    key: str = ""
    tenant: Tenant | None = None
    status: int = 499
    code: str = ""
    is_late: bool = False

    def hold(self, admission: Admission, permits: int = 1) -> None:
        """Notes permits that were taken; the middleware gives them back when the request has ended."""

        def release() -> None:
            admission.leave(permits)
            self.release = _nothing_held

        self.release = release

    def leave(self) -> None:
        """The client left: whoever waits for its sake may stop."""
        self.left = True
        if self.on_disconnect is not None:
            self.on_disconnect()

    def took_ms(self) -> float:
        """Milliseconds since the request began."""
        return (time.perf_counter() - self.started) * 1_000

    def server_timing(self) -> str:
        """The value of `Server-Timing`: every stage, then the total."""
        stages = {**self.timings_ms, "total": self.took_ms()}
        return ", ".join(f"{name};dur={value:.3f}" for name, value in stages.items())


@contextmanager
def leaving_cancels(context: RequestContext) -> Iterator[None]:
    """While this block runs, a client that leaves cancels the request's task, and with it its place in the queue."""
    task = asyncio.current_task()
    context.on_disconnect = task.cancel if task else None
    try:
        yield
    finally:
        context.on_disconnect = None


def new_context(scope: Scope) -> RequestContext:
    """Makes the context of a request and attaches it."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    identifier = given.decode() if _WELL_FORMED_ID.fullmatch(given) else secrets.token_hex(8)
    context = RequestContext(identifier)
    scope[SCOPE_KEY] = context
    return context


def head_of(context: RequestContext, ids: RequestIds) -> dict[str, Any]:
    """The first members of a search's answer: its id, as feedback has to name it, and time so far to the microsecond."""
    return {"request_id": ids.signed(context.request_id), "took_ms": round(context.took_ms(), 3)}


def context_of(scope: Scope) -> RequestContext:
    """The context of a request."""
    context: RequestContext = scope[SCOPE_KEY]
    return context
