"""Which lane a request runs in, once its price is known, and what it pays for that."""

from dataclasses import dataclass

from starlette.types import Scope

from glow_service.api.context import RequestContext
from glow_service.search import MOST_READING, Lane, LaneName, SearchSession
from glow_service.state import Service

__all__ = ["Reading", "enter_lane"]


def enter_lane(service: Service, context: RequestContext, scope: Scope, price: int, name: LaneName) -> Lane:
    """Moves a request to the lane where it belongs, and charges its key the price.

    A request holds one permit of the plain lane since before its body was read. In another lane it holds as many as its
    price, or all where it costs more than there are. A key pays for what is let in: a refusal for want of permits costs nothing.

    Args:
        service: what answers.
        context, scope: the request's.
        price: of all its work, >= 1.
        name: of the lane where it belongs.

    Raises:
        OverloadedError: if that lane has too few permits.
        RateLimitError: if the key still owes for earlier requests.
    """
    lane = service.lanes[name]
    if name != "plain":
        permits = min(price, lane.admission.limit)
        lane.admission.enter(permits)
        context.release()
        context.hold(lane.admission, permits)
    service.access.charge(scope, context.key, price)
    return lane


@dataclass(frozen=True, slots=True)
class Reading:
    """What becomes of a search whose hits turn out to be long, which no request tells.

    Attributes:
        service: what answers.
        context, scope: the request's.
        lane: where it runs.
    """

    service: Service
    context: RequestContext
    scope: Scope
    lane: Lane

    @property
    def reads_first(self) -> int | None:
        """What its hits may cost in its lane; None for no bound."""
        return None if self.lane is self.service.bulk else MOST_READING

    def move(self, session: SearchSession) -> Lane:
        """The bulk lane, in which the request then holds as many permits as the rest may cost.

        Raises:
            OverloadedError: if that lane has too few permits.
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
