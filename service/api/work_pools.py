"""Which worker pool a request runs in, once its cost is known, and what it pays for that."""

from dataclasses import dataclass

from starlette.types import Scope

from glow_service.api.context import RequestContext
from glow_service.search import MOST_READING, SearchSession, WorkPool, WorkPoolName
from glow_service.state import Service

__all__ = ["Reading", "enter_work_pool"]


def enter_work_pool(
    service: Service, context: RequestContext, scope: Scope, cost: int, name: WorkPoolName
) -> WorkPool:
    """Moves a request to the worker pool where it belongs, and charges its key the cost.

    A request holds one permit of the plain worker pool since before its body was read. In another worker pool it holds as many as its
    cost, or all where it costs more than there are. A key pays for what is let in: a refusal for want of permits costs nothing.

    Args:
        service: what answers.
        context, scope: the request's.
        cost: of all its work, >= 1.
        name: of the worker pool where it belongs.

    Raises:
        OverloadedError: if that worker pool has too few permits.
        RateLimitError: if the key still owes for earlier requests.
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
    """What becomes of a search whose hits turn out to be long, which no request tells.

    Attributes:
        service: what answers.
        context, scope: the request's.
        work_pool: where it runs.
    """

    service: Service
    context: RequestContext
    scope: Scope
    work_pool: WorkPool

    @property
    def reads_first(self) -> int | None:
        """What its hits may cost in its worker pool; None for no bound."""
        return None if self.work_pool is self.service.bulk else MOST_READING

    def move(self, session: SearchSession) -> WorkPool:
        """The bulk worker pool, in which the request then holds as many permits as the rest may cost.

        Raises:
            OverloadedError: if that worker pool has too few permits.
        """
        bulk = self.service.bulk
        permits = min(session.reading_left, bulk.admission.limit)
        bulk.admission.enter(permits)
        self.context.release()
        self.context.hold(bulk.admission, permits)
        return bulk

    def pay(self, session: SearchSession) -> None:
        """Has the key owe what its hits cost."""
        self.service.access.owe(self.scope, self.context.key, session.reading_price)
