"""The base of all responses, and problems."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Encoder

__all__ = ["InvalidValue", "Problem", "Record", "encode", "one_of", "says"]


class Record(Struct, frozen=True, omit_defaults=True):
    """A JSON object of a response; a member with its default value is not sent. Readers ignore unknown members."""


def encode(value: Any) -> bytes:
    """A record, or plain values with records in them, as JSON in UTF-8.

    Raises:
        TypeError: if a value is of another type.
    """
    return _ENCODER.encode(value)


def _plain(value: Any) -> str:
    # A word that knows how it was spelled is a text for everybody else.
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


_ENCODER = Encoder(enc_hook=_plain)


def says(text: str) -> Meta:
    """The description of a member in OpenAPI."""
    return Meta(description=text)


def one_of(*values: str) -> Meta:
    """The values of a text. A client accepts others, because a newer service may have more."""
    return Meta(extra_json_schema={"enum": list(values)})


class InvalidValue(Record, frozen=True):
    """An invalid value of a request's body."""

    pointer: Annotated[str, says('JSON pointer (RFC 6901) to the invalid value; "" is the whole body.')]
    detail: Annotated[str, says("What was found and what was expected.")]


class Problem(Struct, frozen=True):
    """An error (RFC 9457). The service sends every member; a client needs none of them, since proxies send problems, too."""

    type: Annotated[str, says("Path that describes the problem: `/problems/` and the code.")] = ""
    title: Annotated[str, says("The problem in a few words.")] = ""
    status: Annotated[int, says("HTTP status.")] = 500
    detail: Annotated[str, says("What was found, what was expected, and what to do.")] = ""
    instance: Annotated[str, says("Path of the request.")] = ""
    code: Annotated[str, says("Stable code of the problem.")] = ""
    request_id: Annotated[str, says("The request's id, as in logs.")] = ""
    errors: Annotated[tuple[InvalidValue, ...], says("Invalid values of the body.")] = ()
