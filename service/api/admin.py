"""`POST /admin/reload` and `POST /admin/rollback`: change the live version in every worker."""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from glow.artifact import IndexRoot, Manifest
from glow.contract import AdminResult, Workers
from glow.errors import ArtifactError, ReadOnlyError
from glow_service.api.bodies import ReloadBody, RollbackBody
from glow_service.api.body import read_object
from glow_service.api.context import context_of
from glow_service.api.responses import json_response
from glow_service.errors import DeadlineError, SwapRefusedError
from glow_service.search import faults_of, index_name
from glow_service.state import Service, service_of

__all__ = ["post_reload", "post_rollback", "workers_of"]

LONGEST_S = 600.0
"""How long a response waits for a version to load, in seconds; the loading itself continues."""
WORKERS_S = 10.0
"""How long a response waits for the other workers after this one, in seconds."""
POLL_S = 0.05


async def post_reload(request: Request) -> Response:
    """Loads the version that CURRENT names in every worker, even if it was refused before."""
    service = service_of(request)
    before = service.resources.live().version
    ReloadBody.model_validate(await _body(request, ReloadBody))
    return await _follow(service, request, before)


async def post_rollback(request: Request) -> Response:
    """Makes the previous or the named version live, and waits until it serves."""
    service = service_of(request)
    before = service.resources.live().version
    body = RollbackBody.model_validate(await _body(request, RollbackBody))
    root, version = IndexRoot(service.settings.index_root), body.version
    if version is None:
        await _change(root, root.rollback, "rollback --index-root INDEX_ROOT")
    else:
        await _change(root, lambda: root.publish(version), f"publish --index-root INDEX_ROOT {version}")
    return await _follow(service, request, before)


async def _body(request: Request, shape: type[ReloadBody] | type[RollbackBody]) -> dict[str, Any]:
    """Reads a body of a given shape; a missing body counts as {}.

    Raises:
        RequestError: if it has unknown fields or wrong types; also as for `read_object`.
    """
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return {}
    service, context = service_of(request), context_of(request.scope)
    value = await read_object(
        request, service.settings.max_body_bytes, context.deadline, service.settings.max_items
    )
    try:
        shape.model_validate(value)
    except ValidationError as error:
        raise faults_of(error, value) from error
    return value


async def _change(root: IndexRoot, change: Callable[[], Manifest], command: str) -> None:
    """Changes CURRENT in a thread; this verifies the version first.

    Raises:
        ReadOnlyError: if this service cannot write the index root; the message has the command.
        SwapRefusedError: if the version is missing or damaged, or there is no previous version.
        GateError: if a gate refused the version, and nobody forced it.
        BusyError: if another process changes the root.
    """
    try:
        await asyncio.to_thread(change)
    except (ReadOnlyError, PermissionError) as error:  # the latter if only the lock file is writable
        raise ReadOnlyError(
            f"this service cannot write the index root; run `glow {command}` on a machine that can, "
            "and every worker follows"
        ) from error
    except ArtifactError as error:
        reason = str(error).replace(f"{root.path}/", "").replace(str(root.path), "the index root")
        raise SwapRefusedError(f"nothing was changed ({error.code}): {reason}") from error


async def _follow(service: Service, request: Request, before: str) -> Response:
    """Makes every worker check CURRENT, waits for this one and briefly for the others, and reports the live version.

    Raises:
        SwapRefusedError: if the version that CURRENT names cannot be served.
        DeadlineError: if loading takes longer than `LONGEST_S`.
    """
    asked = service.workers.ask()
    looked = asyncio.wrap_future(service.watcher.look())
    try:
        await asyncio.wait_for(asyncio.shield(looked), LONGEST_S)
    except TimeoutError as error:
        raise DeadlineError(
            f"the version is still loading after {LONGEST_S:g} s; see the result in /readyz and the log"
        ) from error
    await _wait_for_workers(service, asked)
    live = service.resources.live()
    context_of(request.scope).index_version = live.version
    refusal = service.swap.refusal
    if refusal is not None:
        raise SwapRefusedError(
            f"CURRENT names {refusal.version}, which was refused ({refusal.code}): {refusal.reason}; "
            f"{live.version} stays live"
        )
    return json_response(AdminResult(before, index_name(live), workers_of(service)))


async def _wait_for_workers(service: Service, asked: str) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + WORKERS_S
    while loop.time() < until:
        # A later request may have replaced this one.
        done = (asked, service.workers.asked())
        if all(status.request in done for status in service.workers.statuses()):
            return
        await asyncio.sleep(POLL_S)


def workers_of(service: Service) -> Workers:
    """Number of workers, of those that serve the same version as this one, and of those that refused a version."""
    version = service.resources.live().version
    statuses = service.workers.statuses()
    if not statuses:
        return Workers(1, 1, int(service.swap.refusal is not None))
    return Workers(
        count=len(statuses),
        following=sum(status.version == version for status in statuses),
        refusing=sum(status.refused != "" for status in statuses),
    )
