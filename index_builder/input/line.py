"""One line of input, whatever its file was: a line of JSON, a row of a table, a page."""

from dataclasses import dataclass

__all__ = ["Line"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input, or one row of a table as such a line.

    Attributes:
        number: counted from 1.
        data: the line without its end; only its start where `is_too_long`.
        read_bytes: how far this line moved through the file, decompressed.
        is_too_long: whether it had more bytes than allowed.
        fault: why it is no document, if that is known already; else empty.
    """

    number: int
    data: bytes
    read_bytes: int
    is_too_long: bool = False
    fault: str = ""
