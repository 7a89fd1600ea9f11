"""Reads Redis' replies with a bound: who answers at that address may say that half a gigabyte comes, and be believed."""

from typing import Any

from redis._parsers import _AsyncRESP2Parser
from redis.exceptions import InvalidResponse

__all__ = ["MAX_REPLY_BYTES", "BoundedParser"]

MAX_REPLY_BYTES = (1 << 20) + 64
"""The largest value of ours and what stands around it; messages of the channel have four bytes."""
MAX_ITEMS = 3
"""Of a list: what a subscription says. No list of ours holds another."""


class BoundedParser(_AsyncRESP2Parser):
    """redis-py's own parser, which refuses what is longer than any reply that we ask for."""

    def __init__(self, socket_read_size: int) -> None:
        super().__init__(socket_read_size)
        self._is_in_list = False

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """As redis-py's.

        Raises:
            InvalidResponse: if a value or a list is too long, or lists are nested.
        """
        self._is_in_list = False
        return await super().read_response(*arguments, **options)

    async def _read(self, length: int) -> bytes:
        if not 0 <= length <= MAX_REPLY_BYTES:
            raise InvalidResponse(f"a reply of {length} bytes, expected {MAX_REPLY_BYTES} at most")
        return bytes(await super()._read(length))

    async def _readline(self) -> bytes:
        line = bytes(await super()._readline())
        if line.startswith(b"*") and line != b"*-1":
            if self._is_in_list or not line[1:].isdigit() or int(line[1:]) > MAX_ITEMS:
                raise InvalidResponse(f"a list of lists, or of more than {MAX_ITEMS} items")
            self._is_in_list = True
        return line
