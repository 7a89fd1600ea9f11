"""Reads Redis replies with a size limit: without one, a server could announce half a gigabyte."""

from typing import Any

from redis._parsers import _AsyncRESP2Parser
from redis.exceptions import InvalidResponse

__all__ = ["MAX_REPLY_BYTES", "BoundedParser"]

MAX_REPLY_BYTES = (1 << 20) + 64
"""The largest value with its envelope; messages of the channel have four bytes."""
MAX_ITEMS = 3
"""Most items of a list, as in a reply to a subscription; nested lists are refused."""


class BoundedParser(_AsyncRESP2Parser):
    """redis-py's parser, which refuses replies that are longer than any expected one."""

    def __init__(self, socket_read_size: int) -> None:
        super().__init__(socket_read_size)
        self._is_in_list = False

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Like redis-py's method.

        Raises:
            InvalidResponse: if a value or a list is too long, or lists are nested.
        """
        self._is_in_list = False
        return await super().read_response(*arguments, **options)

    async def _read(self, length: int) -> bytes:
        if not 0 <= length <= MAX_REPLY_BYTES:
            raise InvalidResponse(f"found a reply of {length} bytes, expected at most {MAX_REPLY_BYTES}")
        return bytes(await super()._read(length))

    async def _readline(self) -> bytes:
        line = bytes(await super()._readline())
        if line.startswith(b"*") and line != b"*-1":
            if self._is_in_list or not line[1:].isdigit() or int(line[1:]) > MAX_ITEMS:
                raise InvalidResponse(f"found a nested list, or a list of more than {MAX_ITEMS} items")
            self._is_in_list = True
        return line
