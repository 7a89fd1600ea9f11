"""The last answers of a service that is about to end close their connections."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glow_service.live import Resources

__all__ = ["DrainMiddleware"]


class DrainMiddleware:
    """Adds `Connection: close` while the service drains, outermost, so that every answer has it.

    Whoever keeps connections open goes elsewhere with the next request, and meets none that closes under it.

    Args:
        app: what answers.
        resources: know whether the service drains.
    """

    def __init__(self, app: ASGIApp, resources: Resources) -> None:
        self._app = app
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http" or not self._resources.draining:
            await self._app(scope, receive, send)
            return

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0] != b"connection"]
                message["headers"] = [*headers, (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, closing)
