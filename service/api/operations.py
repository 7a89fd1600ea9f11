"""Operations: health, information, metrics, problems, and the routes of /admin."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from glow import __version__
from glow.artifact import IndexRoot, Manifest
from glow.contract import AdminResult, FieldInfo, Info, Workers
from glow.errors import ArtifactError, BusyError, DiskError, GateError, ReadOnlyError
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.search import RETRIEVERS
from glow_service import errors
from glow_service.api.body import ReloadRequest, RollbackRequest
from glow_service.api.context import context_of, json_response
from glow_service.api.problems import PROBLEMS, problem_type
from glow_service.api.routes import BODY_ERRORS, openapi, route
from glow_service.errors import DeadlineError, RouteNotFoundError, SwapRefusedError
from glow_service.search.render import index_name, list_fields
from glow_service.state import Service, service_of

LONGEST_S = 600.0
"""How long a response waits for a version to load, in seconds; the loading itself continues."""
WORKERS_S = 10.0
"""How long a response waits for the other workers after this one, in seconds."""
POLL_S = 0.05


_ADMIN_ERRORS = (*BODY_ERRORS, errors.SwapRefusedError, errors.NotReadyError)


@route("POST", "/admin/reload", errors=_ADMIN_ERRORS, answer=AdminResult, body=ReloadRequest, tag="admin")
async def post_reload(request: Request, body: ReloadRequest | None = None) -> Response:
    """Loads the version that CURRENT names in every worker, even if it was refused before."""
    service = service_of(request)
    before = service.resources.live().version
    return await _follow(service, request, before)


@route(
    "POST",
    "/admin/rollback",
    errors=(*_ADMIN_ERRORS, GateError, BusyError, ReadOnlyError, DiskError),
    answer=AdminResult,
    body=RollbackRequest,
    tag="admin",
)
async def post_rollback(request: Request, body: RollbackRequest | None = None) -> Response:
    """Makes the previous or the named version live, and waits until it serves."""
    service = service_of(request)
    before = service.resources.live().version
    root, version = IndexRoot(service.settings.index_root), None if body is None else body.version
    if version is None:
        await _change(root, root.rollback, "rollback --index-root INDEX_ROOT")
    else:
        await _change(root, lambda: root.publish(version), f"publish --index-root INDEX_ROOT {version}")
    return await _follow(service, request, before)


async def _change(root: IndexRoot, change: Callable[[], Manifest], command: str) -> None:
    """Changes CURRENT in a thread; this verifies the version first."""
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
    """Makes every worker check CURRENT, waits for this one, briefly for the others, and reports the live version."""
    check = service.workers.ask()
    looked = asyncio.wrap_future(service.watcher.look())
    try:
        await asyncio.wait_for(asyncio.shield(looked), LONGEST_S)
    except TimeoutError as error:
        raise DeadlineError(
            f"the version is still loading after {LONGEST_S:g} s; see the result in /readyz and the log"
        ) from error
    await _wait_for_workers(service, check)
    live = service.resources.live()
    context_of(request.scope).index_version = live.version
    refusal = service.swap.refusal
    if refusal is not None:
        raise SwapRefusedError(
            f"CURRENT names {refusal.version}, which was refused ({refusal.code}): {refusal.reason}; "
            f"{live.version} stays live"
        )
    return json_response(AdminResult(before, index_name(live), workers_of(service)))


async def _wait_for_workers(service: Service, check: str) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + WORKERS_S
    while loop.time() < until:
        # A later request may have replaced this one.
        done = (check, service.workers.asked())
        if all(status.request in done for status in service.workers.statuses()):
            return
        await asyncio.sleep(POLL_S)


def workers_of(service: Service) -> Workers:
    """Number of workers, of those that serve the same version as this one, and of those that refused a version."""
    version = service.resources.live().version
    statuses = service.workers.statuses()
    if not statuses:
        return Workers(1, 1, int(service.swap.refusal is not None))
    following = sum(status.version == version for status in statuses)
    return Workers(len(statuses), following, sum(status.refused != "" for status in statuses))


# Routes for operators: `/healthz`, `/readyz`, `/metrics`, `/info`, `/problems/{code}`.


@route("GET", "/healthz")
async def get_health(request: Request) -> Response:
    """Reports that the process is alive."""
    return json_response({"status": "alive"})


@route("GET", "/readyz", errors=(errors.NotReadyError, errors.DrainingError))
async def get_ready(request: Request) -> Response:
    """Reports whether the service is ready for requests; otherwise 503."""
    service = service_of(request)
    index = await service.readiness.check()
    context_of(request.scope).index_version = index.version
    processes = service.settings.processes
    # A restarted worker may be loading or failing; the other workers serve, so this is no reason for a 503 either.
    workers = {"ready": len(service.workers.statuses()) if processes > 1 else 1, "desired": processes}
    body: dict[str, Any] = {"status": "ready", "index": index_name(index), "workers": workers}
    if service.swap.refusal is not None:  # the live version still serves, so this is no reason for a 503
        body["swap"] = asdict(service.swap.refusal)
    return json_response(body)


@route("GET", "/metrics")
async def get_metrics(request: Request) -> Response:
    """Returns Prometheus metrics."""
    text = await asyncio.to_thread(service_of(request).metrics.text)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


@route("GET", "/info", errors=(errors.NotReadyError,), answer=Info)
async def get_info(request: Request) -> Response:
    """Returns version, index, model, device, and settings without secrets."""
    service = service_of(request)
    index = service.resources.live()
    context_of(request.scope).index_version = index.version
    schema = index.preprocessor.schema
    lists = list_fields(schema)
    return json_response(
        {
            "name": "glow",
            "version": __version__,
            "index": _describe(index),
            "fields": [
                FieldInfo(spec.name, spec.kind, spec.tokens, spec.name in lists) for spec in schema.fields
            ],
            "retrievers": [name for name in RETRIEVERS if not index.refusals[name]],
            "device": service.settings.device,
            "providers": index.encoder.providers,
            "search_threads": service.pool.threads,
            "workers": workers_of(service),
            "feedback": service.feedback_log.is_on,
            "settings": service.settings.public(),
        }
    )


@route("GET", "/problems/{code}", errors=(errors.RouteNotFoundError,))
async def get_problem(request: Request) -> Response:
    """Returns the meaning of a problem code."""
    code = request.path_params["code"]
    for kind, problem in PROBLEMS.items():
        if kind.code == code:
            members = {"title": problem.title, "status": problem.status}
            meaning = (kind.__doc__ or "").split("\n")[0]
            return json_response({"type": problem_type(code), "code": code, **members, "meaning": meaning})
    raise RouteNotFoundError(f"there is no problem with the code {code!r:.80}")


@route("GET", "/openapi.json")
async def get_openapi_document(request: Request) -> Response:
    """The OpenAPI document of this API."""
    return json_response(openapi(request.app))


def _describe(index: Index) -> dict[str, Any]:
    manifest, about = index.manifest, index.info()
    rerank = about["rerank"]
    if rerank is not None:
        rerank = None if index.reranker is None else {**rerank, "share": index.rerank_weight.share}
    return {
        "version": index.version,
        "model": index.model,
        "created": manifest.created,
        "built_by": manifest.tool,
        "hashes": manifest.hashes,
        # Besides vectors and documents.
        "components": [*index.parts(), *(["explain"] if index.explainer is not None else [])],
        "fusion": index.fusion.model_dump() if index.holds(POSTINGS) else None,
        **about,
        "rerank": rerank,
    }
