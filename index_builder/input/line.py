"""One line of input of any format: a line of JSON, a row of a table or a page."""

from dataclasses import dataclass

__all__ = ["Line"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input, or a table row in the form of a line.

    Attributes:
        number: counted from 1.
        data: the line without its line ending; only its start if `is_too_long`.
        read_bytes: decompressed bytes that this line took in the file.
        is_too_long: whether it had more bytes than allowed.
        fault: why it is not a document, if that is known already; otherwise empty.
    """

    number: int
    data: bytes
    read_bytes: int
    is_too_long: bool = False
    fault: str = ""
