"""Which lane a request runs in, once its price is known, and what it pays for that."""

from starlette.types import Scope

from glow_service.api.context import RequestContext
from glow_service.search import Lane
from glow_service.state import Service

__all__ = ["enter_lane"]


def enter_lane(service: Service, context: RequestContext, scope: Scope, price: int, *, is_bulk: bool) -> Lane:
    """Charges a request's key its price, and moves it to the lane where it belongs.

    A request holds one permit of the plain lane since before its body was read. In the bulk lane it holds as many as its
    price, or all where it costs more than there are.

    Args:
        service: what answers.
        context, scope: the request's.
        price: of all its work, >= 1.
        is_bulk: whether it belongs into the bulk lane.

    Raises:
        RateLimitError: if the key still owes for earlier requests.
        OverloadedError: if the bulk lane has too few permits.
    """
    service.access.charge(scope, context.key, price)
    if not is_bulk:
        return service.plain
    admission = service.bulk.admission
    permits = min(price, admission.limit)
    admission.enter(permits)
    context.release()
    context.hold(admission, permits)
    return service.bulk
