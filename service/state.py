"""What one app holds, and how a route reaches it."""

from dataclasses import dataclass

from starlette.requests import Request

from service.access import Gate
from service.admission import Admission
from service.batcher import Batcher
from service.cache import Cache
from service.metrics import Metrics
from service.pool import SearchPool
from service.query_log import QueryLog
from service.readiness import Readiness
from service.resources import Resources
from service.settings import Settings
from service.tracing import Tracer

__all__ = ["Service", "new_service", "service_of"]


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that lives as long as the app."""

    settings: Settings
    metrics: Metrics
    resources: Resources
    pool: SearchPool
    admission: Admission
    batcher: Batcher
    cache: Cache
    gate: Gate
    readiness: Readiness
    tracer: Tracer
    query_log: QueryLog


def new_service(settings: Settings) -> Service:
    """Makes the parts; the index is loaded later, by `Resources.load`."""
    metrics = Metrics()
    pool = SearchPool(settings)
    admission = Admission(settings.max_in_flight)
    batcher = Batcher(
        pool, metrics, settings.batch_tokens, settings.batch_wait_us, arriving=lambda: admission.taken
    )
    resources = Resources(settings, metrics)
    return Service(
        settings=settings,
        metrics=metrics,
        resources=resources,
        readiness=Readiness(resources),
        pool=pool,
        admission=admission,
        batcher=batcher,
        cache=Cache(settings, metrics),
        gate=Gate(settings, metrics),
        tracer=Tracer(settings, metrics.spans_lost.inc),
        query_log=QueryLog(settings, metrics),
    )


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service
