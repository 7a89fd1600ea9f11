"""The service with an intentional leak, for `memory.py --leak`, which must detect it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glow_service.app import from_environment

__all__ = ["leaking"]


class _Leak:
    """Keeps every request's scope and body, like an unbounded cache."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: list[object] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on and keeps it."""
        self._kept.append(scope)

        async def keep() -> Message:
            message = await receive()
            self._kept.append(message)
            return message

        await self._app(scope, keep, send)


def leaking() -> ASGIApp:
    """The wrapped app of `glow serve`; a factory for uvicorn."""
    return _Leak(from_environment())
