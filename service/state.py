"""What one app holds, and how a route reaches it."""

from dataclasses import dataclass

from starlette.requests import Request

from service.metrics import Metrics
from service.pool import SearchPool
from service.resources import Resources
from service.settings import Settings

__all__ = ["Service", "new_service", "service_of"]


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that lives as long as the app."""

    settings: Settings
    metrics: Metrics
    resources: Resources
    pool: SearchPool


def new_service(settings: Settings) -> Service:
    """Makes the parts; the index is loaded later, by `Resources.load`."""
    metrics = Metrics()
    return Service(settings, metrics, Resources(settings, metrics), SearchPool(settings))


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service
