"""The service without release of old versions, for `swap.py --leak`, which must detect it."""

from fastapi import FastAPI

from glow_service.app import from_environment
from glow_service.live.resources import OpenVersion, Resources

__all__ = ["leaking"]


class _Hoarding(Resources):
    """Keeps every version that was ever live, like an unbounded cache."""

    kept: list[OpenVersion] = []  # noqa: RUF012 - shared on purpose, and never emptied

    def use(self, opened: OpenVersion) -> None:
        """Uses the version and keeps it."""
        self.kept.append(opened)
        super().use(opened)


def leaking() -> FastAPI:
    """The app of `glow serve` with this leak; a factory for uvicorn."""
    app = from_environment()
    assert isinstance(app, FastAPI)  # one index
    app.state.service.resources.__class__ = _Hoarding
    return app
