"""The service with the release of old versions removed: what `swap.py --leak` measures to show that it would see it."""

from fastapi import FastAPI

from glow_service.app import from_environment
from glow_service.live.resources import OpenVersion, Resources

__all__ = ["leaking"]


class _Hoarding(Resources):
    """Keeps every version that was ever live, as a forgotten list or a cache without a bound does."""

    kept: list[OpenVersion] = []  # noqa: RUF012 - shared on purpose, and never emptied

    def use(self, opened: OpenVersion) -> None:
        """As ever, and keeps it."""
        self.kept.append(opened)
        super().use(opened)


def leaking() -> FastAPI:
    """The app of `glow serve`, hoarding; uvicorn's factory."""
    app = from_environment()
    assert isinstance(app, FastAPI)  # one index
    app.state.service.resources.__class__ = _Hoarding
    return app
