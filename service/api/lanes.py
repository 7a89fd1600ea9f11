"""Which lane a request runs in, once its price is known, and what it pays for that."""

from starlette.types import Scope

from glow_service.api.context import RequestContext
from glow_service.search import Lane, LaneName
from glow_service.state import Service

__all__ = ["enter_lane"]


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
