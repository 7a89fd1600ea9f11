"""Single-flight: searches that want the same thing at the same time wait for one of them to make it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from glow_service.errors import DeadlineError

__all__ = ["Make", "SingleFlight"]

Make = Callable[[], Awaitable[tuple[bytes, bool]]]
"""Makes a value, and says whether it was found rather than made."""
_Turn = asyncio.Future[tuple[bytes, bool] | None]


class SingleFlight:
    """The first to ask leads and makes the value; the others follow.

    The leader runs in its caller's own task. If it is cancelled or runs into its own deadline, the follower that waited
    longest leads in its place; any other error is the followers' error too. A follower's own deadline is its caller's
    `asyncio.timeout`: leaving the line harms nobody.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, deque[_Turn]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(self, key: bytes, make: Make) -> tuple[bytes, bool]:
        """Makes a value, or waits for the one that is being made.

        Args:
            key: same key, same value.
            make: must not ask for the same key again, which would wait for itself.

        Returns:
            the value, and whether this caller was spared making it.

        Raises:
            Exception: whatever `make` raised here or in the leader.
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
        """The leader's value, or None where this caller is to lead now."""
        turn: _Turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            # Cancelled in the very moment in which it was told to lead: the next one must.
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
        except BaseException:  # cancelled, or the process is about to end
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
