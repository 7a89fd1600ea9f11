"""The state of one app, and its assembly from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from glow.ingest import IngestLog
from glow_service.access import (
    MAX_CLIENTS,
    AccessControl,
    ClientLimits,
    RateLimiter,
    RequestIds,
    parse_keys,
    read_tenants,
)
from glow_service.cache import Cache
from glow_service.collections import DEFAULT_COLLECTION
from glow_service.live import Readiness, Resources, Swap, Watcher, WorkerGroup
from glow_service.search import BULK_NICENESS, RERANK_NICENESS, SearchLimits, WorkPool, WorkPoolName
from glow_service.settings import Settings
from glow_service.telemetry import FeedbackLog, Metrics, QueryLog, Tracer, feedback_key
from glow_service.writes import Follower

HOUR_S = 3_600
FEEDBACK_PER_HOUR = 200
"""Clicks and judgments that a person can send at once, and again each hour."""


@dataclass(frozen=True, slots=True)
class Service:
    """All parts of an app."""

    settings: Settings
    limits: SearchLimits
    metrics: Metrics
    resources: Resources
    plain: WorkPool
    bulk: WorkPool
    rerank: WorkPool
    cache: Cache
    access: AccessControl
    clients: ClientLimits
    request_ids: RequestIds
    readiness: Readiness
    tracer: Tracer
    query_log: QueryLog
    feedback_log: FeedbackLog
    swap: Swap
    workers: WorkerGroup
    watcher: Watcher
    ingest: IngestLog
    follower: Follower

    @property
    def work_pools(self) -> Mapping[WorkPoolName, WorkPool]:
        """The worker pools by name."""
        return {"plain": self.plain, "rerank": self.rerank, "bulk": self.bulk}


def client_limits(settings: Settings) -> ClientLimits:
    """Makes the client limits, which all indexes of a process share."""
    clients = max(MAX_CLIENTS, len(parse_keys(settings.api_keys.get_secret_value())))
    requests = None
    if settings.rate_limit > 0:
        requests = RateLimiter(settings.rate_limit, settings.rate_burst, clients)
    return ClientLimits(requests, RateLimiter(FEEDBACK_PER_HOUR / HOUR_S, FEEDBACK_PER_HOUR, clients))


def new_service(
    settings: Settings, collection: str = DEFAULT_COLLECTION, clients: ClientLimits | None = None
) -> Service:
    """Makes the parts of an app; `Resources.load` loads the index later."""
    clients = clients or client_limits(settings)
    metrics = Metrics()
    resources = Resources(
        settings.index_root, metrics, settings.device, settings.encode_threads, settings.document_model
    )
    workers = WorkerGroup()
    swap = Swap(settings.index_root, resources, metrics, workers, settings.loaders)
    watcher = Watcher(resources, swap, workers, settings.encode_threads)
    return Service(
        settings=settings,
        limits=settings.limits,
        metrics=metrics,
        resources=resources,
        readiness=Readiness(resources, workers, settings.processes),
        plain=_lane(settings, metrics),
        bulk=_lane(settings, metrics, BULK_NICENESS),
        rerank=_lane(settings, metrics, RERANK_NICENESS),
        cache=Cache(
            metrics,
            settings.cache_entries,
            settings.cache_ttl_s,
            settings.redis_url.get_secret_value(),
            settings.redis_timeout_ms,
        ),
        access=_access(settings, metrics, collection, clients),
        clients=clients,
        request_ids=_request_ids(settings),
        tracer=Tracer(settings.otel_endpoint, settings.otel_sample_rate, metrics.spans_lost.inc),
        query_log=QueryLog(metrics, settings.query_log, settings.query_log_sample_rate),
        feedback_log=FeedbackLog(metrics, settings.feedback_log),
        swap=swap,
        workers=workers,
        watcher=watcher,
        ingest=IngestLog(settings.ingest_path, settings.ingest_bytes),
        follower=Follower(settings.index_root, settings.ingest_path, resources, workers),
    )


def _access(settings: Settings, metrics: Metrics, collection: str, clients: ClientLimits) -> AccessControl:
    api_keys = settings.api_keys.get_secret_value()
    return AccessControl(
        metrics,
        api_keys=api_keys,
        admin_key=settings.admin_key.get_secret_value(),
        write_key=settings.write_key.get_secret_value(),
        limiter=clients.requests,
        tenants=read_tenants(settings.tenants, parse_keys(api_keys)),
        collection=collection,
    )


def _request_ids(settings: Settings) -> RequestIds:
    """Signs ids if clicks are logged and need no API key; clients with a key are trusted."""
    if not settings.feedback_log or settings.api_keys.get_secret_value():
        return RequestIds()
    return RequestIds(feedback_key(settings.feedback_log, settings.feedback_key.get_secret_value()))


def _lane(settings: Settings, metrics: Metrics, niceness: int = 0) -> WorkPool:
    return WorkPool.open(
        metrics,
        permits=settings.max_in_flight,
        threads=settings.threads,
        encode_threads=settings.encode_threads,
        batch_tokens=settings.batch_tokens,
        batch_wait_us=settings.batch_wait_us,
        niceness=niceness,
    )


def service_of(request: Request) -> Service:
    """The service of a request."""
    service: Service = request.app.state.service
    return service
