"""The shapes of `/admin`: what it is asked, and what it answers."""

from pydantic import Field

from glow_service.api.schemas import IndexShape
from glow_service.search import Shape

__all__ = ["AdminResult", "ReloadBody", "RollbackBody"]


class ReloadBody(Shape):
    """`POST /admin/reload`: nothing; the body may be left out."""


class RollbackBody(Shape):
    """`POST /admin/rollback`; the body may be left out."""

    version: str | None = Field(
        None, max_length=128, description="The version to make live; else the one that was live before."
    )


class WorkersShape(Shape):
    """The workers of this service."""

    count: int = Field(description="How many there are.")
    following: int = Field(description="How many have the live version of the one that answers.")
    refusing: int = Field(description="How many refused the version that CURRENT names.")


class AdminResult(Shape):
    """The answer of both."""

    before: str = Field(description="The version that was live when the request came.")
    live: IndexShape
    workers: WorkersShape
