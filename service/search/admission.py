"""Admission: limits how many requests a process works on at once.

A request takes a slot before its body is read, or is refused at once: its client can then use another replica, or
retry. Waiting would only make an invisible queue.
"""

from glow_service.errors import OverloadedError

__all__ = ["Admission"]


class Admission:
    """The slots of one process; only its event loop may use them.

    Args:
        limit: number of slots, >= 1.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def enter(self, permits: int = 1) -> None:
        """Takes slots, all or none; `leave` releases them.

        Raises:
            OverloadedError: if fewer are free.
        """
        if self.taken + permits > self.limit:
            raise OverloadedError(f"{self.taken} of {self.limit} requests are in work; try again in a moment")
        self.taken += permits

    def leave(self, permits: int = 1) -> None:
        """Releases slots."""
        self.taken -= permits
