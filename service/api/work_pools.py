"""Moves requests to the worker pool for their cost, and charges their key."""

from dataclasses import dataclass

from starlette.types import Scope

from glow_service.api.context import RequestContext
from glow_service.search import MOST_READING, SearchSession, WorkPool, WorkPoolName
from glow_service.state import Service

__all__ = ["Reading", "enter_work_pool"]


def enter_work_pool(
    service: Service, context: RequestContext, scope: Scope, cost: int, name: WorkPoolName
) -> WorkPool:
    """Moves a request to a worker pool, and charges its key the cost.

    Before its body is read, a request takes one slot of the plain pool. In another pool it takes as many slots as its
    cost, or all if it costs more. Only accepted requests are charged: a refusal for lack of slots costs nothing.

    Args:
        service: the service.
        context, scope: context and ASGI scope of the request.
        cost: total cost of the request, >= 1.
        name: name of the worker pool.

    Raises:
        OverloadedError: if the pool has too few free slots.
        RateLimitError: if the key is in debt for earlier requests.
    """
    work_pool = service.work_pools[name]
    if name != "plain":
        permits = min(cost, work_pool.admission.limit)
        work_pool.admission.enter(permits)
        context.release()
        context.hold(work_pool.admission, permits)
    service.access.charge(scope, context.key, cost)
    return work_pool


@dataclass(frozen=True, slots=True)
class Reading:
    """A search request and its worker pool, which changes if the hits turn out to be long.

    Attributes:
        service: the service.
        context, scope: context and ASGI scope of the request.
        work_pool: the worker pool in which it starts.
    """

    service: Service
    context: RequestContext
    scope: Scope
    work_pool: WorkPool

    @property
    def reads_first(self) -> int | None:
        """Largest cost of its hits in this pool; None for no limit."""
        return None if self.work_pool is self.service.bulk else MOST_READING

    def move(self, session: SearchSession) -> WorkPool:
        """Moves the request to the bulk pool, with as many slots as the estimated cost of its remaining hits.

        Raises:
            OverloadedError: if the pool has too few free slots.
        """
        bulk = self.service.bulk
        permits = min(session.reading_left, bulk.admission.limit)
        bulk.admission.enter(permits)
        self.context.release()
        self.context.hold(bulk.admission, permits)
        return bulk

    def pay(self, session: SearchSession) -> None:
        """Charges the key for the cost of the hits."""
        self.service.access.owe(self.scope, self.context.key, session.reading_price)
