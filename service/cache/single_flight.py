"""Single-flight: of concurrent searches for the same value, one makes it and the others wait."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from glow_service.errors import DeadlineError

__all__ = ["Make", "SingleFlight"]

Make = Callable[[], Awaitable[tuple[bytes, bool]]]
"""Returns a value, and whether it was found rather than made."""
_Turn = asyncio.Future[tuple[bytes, bool] | None]


class SingleFlight:
    """The first caller leads and makes the value; the others follow.

    The leader runs in its caller's task. If it is canceled or reaches its own deadline, the follower that waited
    longest becomes the leader; the followers receive any other error. Callers of followers set their deadline with
    `asyncio.timeout`; a follower that gives up does not affect the others.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, deque[_Turn]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(self, key: bytes, make: Make) -> tuple[bytes, bool]:
        """Makes a value, or waits for the leader's value.

        Args:
            key: identifies the value.
            make: makes the value; it must not request the same key, which would be a deadlock.

        Returns:
            The value, and whether it was not made by this caller.

        Raises:
            Exception: any exception of `make`, here or in the leader.
        """
        line = self._flights.get(key)
        if line is None:
            self._flights[key] = deque()
        else:
            value = await self._follow(key, line)
            if value is not None:
                return value
        return await self._lead(key, make)

    async def _follow(self, key: bytes, line: deque[_Turn]) -> tuple[bytes, bool] | None:
        """The leader's value, or None if this caller becomes the leader."""
        turn: _Turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            # Canceled at the moment when it became the leader: the next follower must lead.
            if turn.done() and not turn.cancelled() and turn.exception() is None and turn.result() is None:
                self._hand_over(key)
            raise

    async def _lead(self, key: bytes, make: Make) -> tuple[bytes, bool]:
        try:
            made = await make()
        except (DeadlineError, TimeoutError):
            self._hand_over(key)
            raise
        except Exception as error:
            for turn in self._end(key):
                turn.set_exception(error)
            raise
        except BaseException:  # canceled, or the process is about to end
            self._hand_over(key)
            raise
        for turn in self._end(key):
            turn.set_result((made[0], True))
        return made

    def _end(self, key: bytes) -> list[_Turn]:
        return [turn for turn in self._flights.pop(key) if not turn.done()]

    def _hand_over(self, key: bytes) -> None:
        line = self._flights[key]
        while line:
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._flights[key]
