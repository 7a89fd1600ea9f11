"""Responses of shards as they arrive: each bounded in bytes, all of them by one deadline.

A timeout of a socket bounds one read, so a shard that sends a byte now and then would hold its reader for hours.
"""

import re
import selectors
import socket
import time
from collections.abc import Iterator

__all__ = ["Incoming", "UnusableResponseError", "arrivals"]

MAX_HEAD_BYTES = 16 << 10
READ_BYTES = 1 << 20
_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) ")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,12})\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)


class UnusableResponseError(Exception):
    """What arrives is no response of a shard, or too long; the message has nothing of its bytes."""


class Incoming:
    """One response, read as far as it has arrived.

    Args:
        sock: that the call was written to.
        most_bytes: of the body.

    Attributes:
        status: HTTP status; 0 until it is known.
        body: what has arrived of it.
        error: why there will be no response; None while there may be one.
        can_go_on: whether the connection can carry another call, once the response is whole.
    """

    def __init__(self, sock: socket.socket, most_bytes: int) -> None:
        self.sock = sock
        self.status = 0
        self.body = bytearray()
        self.error: Exception | None = None
        self.can_go_on = False
        self._most_bytes = most_bytes
        self._left: int | None = None
        """Bytes of the body that are still to come; None until the head is whole."""

    def read(self) -> bool:
        """Reads what is there; returns whether that was the end, good or bad."""
        try:
            data = self.sock.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError("the connection was closed")
            self._take(data)
        except (OSError, UnusableResponseError) as error:
            self.error = error
        return self.error is not None or self._left == 0

    def _take(self, data: bytes) -> None:
        self.body += data
        if self._left is not None:
            self._left -= len(data)
        elif (end := self.body.find(_END)) >= 0:
            self._left = self._read_head(bytes(self.body[: end + 2])) - (len(self.body) - end - len(_END))
            del self.body[: end + len(_END)]
        elif len(self.body) > MAX_HEAD_BYTES:
            raise UnusableResponseError("it speaks no HTTP")
        if self._left is not None and self._left < 0:
            raise UnusableResponseError("more arrived than the response has")

    def _read_head(self, head: bytes) -> int:
        """Reads status and headers; returns the length of the body."""
        status, length = _STATUS.match(head), _LENGTH.search(head)
        if status is None or length is None:
            raise UnusableResponseError("it does not speak as a shard of this GLOW")
        if int(length[1]) > self._most_bytes:
            raise UnusableResponseError(
                f"a response of {int(length[1])} bytes, expected {self._most_bytes} at most"
            )
        self.status = int(status[1])
        self.can_go_on = _CLOSES.search(head) is None
        return int(length[1])


def arrivals(waiting: selectors.BaseSelector, until: float) -> Iterator[selectors.SelectorKey]:
    """Yields responses as each is whole or has failed, and at the deadline those that are late.

    Args:
        waiting: sockets with a tuple as data, whose first member is an `Incoming`; more may come meanwhile.
        until: the deadline, in `time.monotonic()`.
    """
    while waiting.get_map():
        left_s = until - time.monotonic()
        for key, _ in waiting.select(max(left_s, 0.0)):
            if key.data[0].read():
                waiting.unregister(key.fileobj)
                yield key
        if left_s <= 0.0:
            for key in list(waiting.get_map().values()):
                waiting.unregister(key.fileobj)
                key.data[0].error = TimeoutError("the deadline passed")
                yield key
