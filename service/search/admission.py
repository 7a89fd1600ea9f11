"""Admission: how many requests a process works on at once.

A permit is taken without waiting, before a request's body is read. Waiting would only move the queue to where nobody
can see it: a client that is told at once can go to another replica, or come back.
"""

from glow_service.errors import OverloadedError

__all__ = ["Admission"]


class Admission:
    """Permits of one process; used from its event loop alone.

    Args:
        limit: permits in all, >= 1.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def enter(self, permits: int = 1) -> None:
        """Takes permits, all or none; whoever took them gives them back by `leave`.

        Raises:
            OverloadedError: if fewer are free.
        """
        if self.taken + permits > self.limit:
            raise OverloadedError(f"{self.taken} of {self.limit} requests are in work; try again in a moment")
        self.taken += permits

    def leave(self, permits: int = 1) -> None:
        """Gives permits back."""
        self.taken -= permits
