"""Routes for operators: `/healthz`, `/readyz`, `/metrics`, `/info`, `/problems/{code}`."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from glow import __version__
from glow.contract import FieldInfo
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.search import RETRIEVERS
from glow_service.api.admin import workers_of
from glow_service.api.context import context_of
from glow_service.api.problems import PROBLEMS, problem_type
from glow_service.api.responses import json_response
from glow_service.errors import RouteNotFoundError
from glow_service.search import index_name, list_fields
from glow_service.state import service_of

__all__ = ["get_health", "get_info", "get_metrics", "get_problem", "get_ready"]

SHOWN_COLUMNS = 200


async def get_health(request: Request) -> Response:
    """Reports that the process is alive."""
    return json_response({"status": "alive"})


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


async def get_metrics(request: Request) -> Response:
    """Returns Prometheus metrics."""
    text = await asyncio.to_thread(service_of(request).metrics.text)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def get_info(request: Request) -> Response:
    """Returns version, index, model, device, and settings without secrets."""
    service = service_of(request)
    index = service.resources.live()
    context_of(request.scope).index_version = index.version
    return json_response(
        {
            "name": "glow",
            "version": __version__,
            "index": _describe(index),
            "fields": _fields(index),
            "retrievers": _retrievers(index),
            "device": service.settings.device,
            "providers": index.encoder.providers,
            "search_threads": service.plain.pool.threads,
            "workers": workers_of(service),
            "feedback": service.feedback_log.is_on,
            "settings": service.settings.public(),
        }
    )


async def get_problem(request: Request) -> Response:
    """Returns the meaning of a problem code."""
    wanted = request.path_params["code"]
    for kind, problem in PROBLEMS.items():
        if kind.code == wanted:
            meaning = (kind.__doc__ or "").split("\n")[0]
            return json_response(
                {
                    "type": problem_type(kind.code),
                    "code": kind.code,
                    "title": problem.title,
                    "status": problem.status,
                    "meaning": meaning,
                }
            )
    raise RouteNotFoundError(f"there is no problem with the code {wanted!r:.80}")


def _describe(index: Index) -> dict[str, Any]:
    manifest, told = index.manifest, index.info()
    return {
        "version": index.version,
        "model": index.model,
        "created": manifest.created,
        "built_by": manifest.tool,
        "hashes": manifest.hashes,
        "components": _components(index),
        "fusion": index.fusion.model_dump() if index.holds(POSTINGS) else None,
        **told,
        "rerank": _rerank(index, told["rerank"]),
    }


def _rerank(index: Index, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What reads hits again, and what it has stored of documents."""
    if index.reranker is None or stored is None:
        return None
    return {"methods": index.reranker.shape.methods, **stored, "share": index.rerank_weight.share}


def _components(index: Index) -> list[str]:
    """Components of the version besides vectors and documents."""
    return [*index.parts(), *(["explain"] if index.explainer is not None else [])]


def _retrievers(index: Index) -> list[str]:
    return [name for name in RETRIEVERS if not index.refusals[name]]


def _fields(index: Index) -> list[FieldInfo]:
    schema = index.preprocessor.schema
    lists = list_fields(schema)
    return [FieldInfo(spec.name, spec.kind, spec.tokens, spec.name in lists) for spec in schema.fields]
