"""The service with a leak planted around it: what `memory.py --leak` measures to show that it would see one."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glow_service.app import from_environment

__all__ = ["leaking"]


class _Leak:
    """Keeps every request's scope and body, as a forgotten list or a cache without a bound does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: list[object] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on, and keeps."""
        self._kept.append(scope)

        async def keep() -> Message:
            message = await receive()
            self._kept.append(message)
            return message

        await self._app(scope, keep, send)


def leaking() -> ASGIApp:
    """The app of `glow serve`, wrapped; uvicorn's factory."""
    return _Leak(from_environment())
