"""The frames that the parser process sends to the build: a kind, a length and the payload.

Nothing is pickled: a parser that malicious input controls can send wrong rows, but nothing else.
"""

import os
import struct
from collections.abc import Callable

from glow_index_builder.input.line import Line

__all__ = ["DONE", "ENDED", "FAULT", "LINE", "pack_line", "read_exactly", "read_frame", "unpack_line", "write_frame"]  # fmt: skip

LINE, FAULT, DONE, ENDED = b"L", b"F", b"D", b"E"
"""A row or page; an error's type and text, or a page's fault; the file's end; the signal that ended a parser."""
_HEAD = struct.Struct("!cI")
_LINE = struct.Struct("!QQ?I")


def write_frame(kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """A frame in two chunks, so that long rows are not copied."""
    return _HEAD.pack(kind, len(payload)), payload


def read_frame(read: Callable[[int], bytes]) -> tuple[bytes, bytes] | None:
    """The next frame's kind and payload; None if the process has ended before or within it.

    Args:
        read: reads the given number of bytes, fewer only at the end.
    """
    head = read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    kind, size = _HEAD.unpack(head)
    payload = read(size)
    return (kind, payload) if len(payload) == size else None


def pack_line(line: Line) -> bytes:
    """Serializes a line."""
    fault = line.fault.encode(errors="replace")
    return _LINE.pack(line.number, line.read_bytes, line.is_too_long, len(fault)) + fault + line.data


def unpack_line(payload: bytes) -> Line:
    """Deserializes a line."""
    number, read_bytes, is_too_long, size = _LINE.unpack_from(payload)
    start = _LINE.size
    fault = payload[start : start + size].decode(errors="replace")
    return Line(number, payload[start + size :], read_bytes, is_too_long, fault)


def read_exactly(descriptor: int, size: int) -> bytes:
    """Reads the given number of bytes, fewer at the end; unbuffered, so that a process that takes over misses none."""
    parts = []
    while size and (part := os.read(descriptor, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
