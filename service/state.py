"""The state of one app, and its assembly from the settings."""

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
from glow_service.live.resources import Resources
from glow_service.live.swap import Swap, Watcher
from glow_service.live.workers import Readiness, WorkerGroup
from glow_service.search.pool import ENCODE_THREADS, SearchPool
from glow_service.settings import Settings
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import FeedbackLog, QueryLog, feedback_key
from glow_service.telemetry.tracing import Tracer
from glow_service.writes import Follower

HOUR_S = 3_600
FEEDBACK_PER_HOUR = 200
"""Clicks and judgments that a person can send at once, and again each hour."""


@dataclass(frozen=True, slots=True)
class Service:
    """All parts of an app."""

    settings: Settings
    metrics: Metrics
    resources: Resources
    pool: SearchPool
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
    api_keys, metrics = settings.api_keys.get_secret_value(), Metrics()
    request_ids = RequestIds()
    if settings.feedback_log and not api_keys:  # clients with a key are trusted
        key = feedback_key(settings.feedback_log, settings.feedback_key.get_secret_value())
        request_ids = RequestIds(key)
    resources = Resources(
        settings.index_root,
        metrics,
        settings.device,
        ENCODE_THREADS,
        settings.document_model,
        settings.synonyms,
    )
    workers = WorkerGroup()
    swap = Swap(settings.index_root, resources, metrics, workers, settings.loaders)
    watcher = Watcher(resources, swap, workers, ENCODE_THREADS)
    return Service(
        settings=settings,
        metrics=metrics,
        resources=resources,
        readiness=Readiness(resources, workers, settings.processes),
        pool=SearchPool(metrics, settings.threads, settings.max_in_flight),
        cache=Cache(
            metrics,
            settings.cache_entries,
            settings.cache_ttl_s,
            settings.redis_url.get_secret_value(),
            settings.redis_timeout_ms,
        ),
        access=AccessControl(
            metrics,
            api_keys=api_keys,
            admin_key=settings.admin_key.get_secret_value(),
            write_key=settings.write_key.get_secret_value(),
            limiter=clients.requests,
            tenants=read_tenants(settings.tenants, parse_keys(api_keys)),
            collection=collection,
        ),
        clients=clients,
        request_ids=request_ids,
        tracer=Tracer(settings.otel_endpoint, settings.otel_sample_rate, metrics.spans_lost.inc),
        query_log=QueryLog(metrics, settings.query_log, settings.query_log_sample_rate),
        feedback_log=FeedbackLog(metrics, settings.feedback_log),
        swap=swap,
        workers=workers,
        watcher=watcher,
        ingest=IngestLog(settings.ingest_path, settings.ingest_bytes),
        follower=Follower(settings.index_root, settings.ingest_path, resources, workers),
    )


def service_of(request: Request) -> Service:
    """The service of a request."""
    service: Service = request.app.state.service
    return service
