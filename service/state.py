"""What one app holds, and how a route reaches it."""

from dataclasses import dataclass

from starlette.requests import Request

from service.access import Gate
from service.admission import Admission
from service.batcher import Batcher
from service.cache import Cache
from service.channel import Channel, channel_name
from service.metrics import Metrics
from service.pool import SearchPool
from service.query_log import QueryLog
from service.readiness import Readiness
from service.resources import Resources
from service.settings import Settings
from service.shadow import Shadow
from service.swap import Swap
from service.tracing import Tracer
from service.watch import Watcher
from service.workers import Mates

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
    swap: Swap
    mates: Mates
    watcher: Watcher
    channel: Channel | None
    shadow: Shadow


def new_service(settings: Settings) -> Service:
    """Makes the parts; the index is loaded later, by `Resources.load`."""
    metrics = Metrics()
    pool = SearchPool(settings)
    admission = Admission(settings.max_in_flight)
    batcher = Batcher(
        pool, metrics, settings.batch_tokens, settings.batch_wait_us, arriving=lambda: admission.taken
    )
    resources = Resources(settings, metrics)
    mates = Mates()
    swap = Swap(settings, resources, metrics, mates)
    watcher = Watcher(settings, resources, swap, mates)
    return Service(
        settings=settings,
        metrics=metrics,
        resources=resources,
        readiness=Readiness(resources, mates, settings.processes),
        pool=pool,
        admission=admission,
        batcher=batcher,
        cache=Cache(settings, metrics),
        gate=Gate(settings, metrics),
        tracer=Tracer(settings, metrics.spans_lost.inc),
        query_log=QueryLog(settings, metrics),
        swap=swap,
        mates=mates,
        watcher=watcher,
        channel=_channel(settings, watcher),
        shadow=Shadow(settings, resources, metrics),
    )


def _channel(settings: Settings, watcher: Watcher) -> Channel | None:
    """What connects the watchers of all replicas, where there is a Redis."""
    url = settings.redis_url.get_secret_value()
    if not url:
        return None
    channel = Channel(url, channel_name(settings.index_root), watcher.look_soon)
    watcher.on_change = channel.announce
    return channel


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service
